"""The pinned versions cover what we declare, and nothing in the tree ties an install to one registry or machine."""

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ragen.doctor import CORE, EXTRAS, PYTHONS

ROOT = Path(__file__).parents[2]

# In two halves, so that this file does not contain what it looks for.
REGISTRY_HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "download.pytorch" + ".org"]
ELSEWHERE = {"vllm", "reasoning-gym", "textarena", "textworld", "minigrid", "mlflow", "trackio", "docs"}
"""Extras that have an environment of their own: `make test-vllm`, `test-adapters`, `test-trackers`, `docs`."""
OF_THE_REPOSITORY = {"dev", "docs"}
"""Extras that are of no use without the repository."""
MACHINE_PATHS = ["/opt/" + "wheels", "/opt/" + "pypi"]


def pins() -> dict[str, str]:
    """name -> version of every line of constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), f"constraints.txt: not a plain pin: {line}"
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def declared() -> list[Requirement]:
    """What the core and every extra ask for, but those that have an environment of their own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in ELSEWHERE}
    return [Requirement(line) for lines in [project["dependencies"], *extras.values()] for line in lines]


def tree_files() -> Iterator[Path]:
    """The files a commit would hold: all but hidden folders and those that .gitignore names."""
    ignored = {line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.endswith("/")}
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [
            name
            for name in subfolders
            if name == ".ci" or not (name in ignored or name.startswith(".") or name.endswith(".egg-info"))
        ]
        yield from (Path(folder) / name for name in names)


def test_every_declared_dependency_is_pinned_within_its_range():
    versions = pins()
    for requirement in declared():
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} has no pin. Run: make constraints"
        assert version in requirement.specifier, f"{requirement} does not allow the pin {version}"


def test_extras_have_names_that_every_pip_finds():
    """Metadata hold the canonical name, and pip 23 looks for what was typed: .[a_b] would install nothing of it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: canonicalize_name(name) for name in extras} == {name: name for name in extras}


def test_no_cuda_package_is_pinned():
    assert not [name for name in pins() if name.startswith(("cuda", "nvidia", "triton"))]


def test_no_file_names_a_registry_or_a_path_of_this_machine():
    found = []
    for path in tree_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # weights, pictures
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in REGISTRY_HOSTS + MACHINE_PATHS if word in text]
    assert not found, "\n".join(found)


def test_the_doctor_knows_every_dependency_and_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {canonicalize_name(name) for name in CORE} == {
        canonicalize_name(Requirement(line).name) for line in project["dependencies"]
    }
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name not in OF_THE_REPOSITORY}
    known = {name: set(map(canonicalize_name, extra.packages)) for name, extra in EXTRAS.items()}
    asked = {name: {canonicalize_name(Requirement(line).name) for line in lines} for name, lines in extras.items()}
    assert known == asked, "EXTRAS of ragen/doctor.py says what each extra brings and what it gives"
    declared = Requirement(f"python{project['requires-python']}").specifier
    tried = {f"3.{minor}" for minor in range(20) if declared.contains(f"3.{minor}.0")}
    assert tried == {f"{major}.{minor}" for major, minor in PYTHONS}
    assert tried == {line.split()[-1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
