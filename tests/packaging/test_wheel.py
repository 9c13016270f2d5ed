"""A wheel is whole: installed away from the repository, its commands run in an empty folder."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCES = ("LICENSE", "MANIFEST.in", "README.md", "config", "pyproject.toml", "ragen", "setup.py")
"""All that a build needs."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built by `pip wheel` from a copy of the sources, with the build tools that are installed."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    stale = folder / "build" / "lib" / "ragen" / "config" / "files" / "gone.yaml"  # of a build long ago
    stale.parent.mkdir(parents=True)
    stale.write_text("gone: true\n")
    words = ["wheel", ".", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", "out"]
    subprocess.run([sys.executable, "-m", "pip", *words], cwd=folder, check=True)
    (found,) = (folder / "out").glob("ragen_agents-*.whl")
    return found


def new_environment(wheel: Path, home: Path) -> Path:
    """An environment that holds the wheel and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    words = ["--python", str(home / "bin/python"), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], env=environment(), check=True)
    return home


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory) -> Path:
    """`ragen` of a fresh environment that has RAGEN from the wheel alone, and what it depends on from this one."""
    home = new_environment(wheel, tmp_path_factory.mktemp("environment"))
    (packages,) = home.glob("lib/python*/site-packages")
    # Modules are found in a folder that a .pth file names, but its own .pth files, an editable install, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "ragen"


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory) -> Path:
    """`ragen` of an environment without any extra: of what is installed here, only what the core asks for is linked."""
    home = new_environment(wheel, tmp_path_factory.mktemp("core"))
    (packages,) = home.glob("lib/python*/site-packages")
    for name in needed_by("ragen-agents"):
        files = importlib.metadata.files(name) or []
        for top in {Path(file.parts[0]) for file in files if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(sysconfig.get_path("purelib")) / top)
    return home / "bin" / "ragen"


def needed_by(name: str) -> set[str]:
    """The distributions that a distribution asks for, without extras, down to the last; itself left out."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or []:
            need = Requirement(line)
            is_meant = need.marker is None or need.marker.evaluate({"extra": ""})
            if is_meant and (key := canonicalize_name(need.name)) not in found:
                found.add(key)
                waiting.append(key)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("empty")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def start(program: Path, folder: Path, line: str, text: str = "") -> subprocess.CompletedProcess:
    words = [str(program), *shlex.split(line)]
    return subprocess.run(words, cwd=folder, env=environment(), input=text, capture_output=True, text=True, timeout=280)


def run(program: Path, folder: Path, line: str, text: str = "") -> str:
    result = start(program, folder, line, text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_file_that_is_no_code_comes_along(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {f"ragen/config/files/{path.relative_to(ROOT / 'config')}" for path in (ROOT / "config").rglob("*.yaml")}
    others = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "ragen").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert configs | others <= names
    assert "ragen/config/files/gone.yaml" not in names
    assert not [name for name in names if name.startswith(("config/", "tests/", "tools/"))]


def test_the_code_and_its_configurations_are_those_of_the_wheel(program, folder):
    code = "import ragen.config.load; print(ragen.__file__, ragen.config.load.CONFIG_DIR)"
    words = [str(program.parent / "python"), "-c", code]
    out = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=True).stdout
    home = str(program.parents[1])
    assert all(path.startswith(home) for path in out.split())


FEW = "es_manager.val.env_groups=4"
SMALL = f"{FEW} es_manager.train.env_groups=2 es_manager.train.group_size=2 ppo_mini_batch_size=4"
COMMANDS = {
    "demo --levels 4 trainer.total_training_steps=1 trainer.test_freq=1": "Learning curve",
    "train --config-name quickstart_bandit trainer.experiment_name=first trainer.total_training_steps=2": "first",
    f"eval tiny --config-name _2_sokoban {FEW}": "solver",
    f"sft --config-name quickstart sft.output_dir=lake sft.train_size=40 sft.epochs=1 {FEW}": "lake",
    "check --config-name _3_frozen_lake": "random",
    "plot checkpoints/ragen/first": "learning_curve.png",
    "diagnose checkpoints/ragen/first": "Validation success",
    "collapse --run-dir checkpoints/ragen/first": "collapse.png",
    "gradients table --help": "usage: ragen gradients table",
    "legacy bandit --help": "usage: ragen legacy",
    "legacy two_armed_bandit --show model.base_model=tiny": "python train.py",
    "search --env_name sokoban --search_group 1 --base_model tiny --dry_run": "train_batch_size_4",
    "config --config-name real_sokoban": "model_path",
    "models": "tiny",
    "completion bash": "complete -o filenames -F _ragen ragen",
    "doctor": "The core is whole.",
}
"""Command line -> a word of what it prints."""


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_runs(program, folder, line):
    assert COMMANDS[line] in run(program, folder, line)


def test_a_sweep_runs_and_reports(program, folder):
    line = "sweep kl --kl-values 0,0.01 --steps 1 --model-path tiny --gpus 0 "
    run(program, folder, f"{line} {SMALL} trainer.logger=[console]")
    (report,) = folder.glob("**/kl*.md")
    assert "0.01" in report.read_text()


def test_the_page_is_served(program, folder):
    command = [str(program), "view", "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment() | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", child.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(address[0]) as answer:
            assert b"<html" in answer.read()
        with urllib.request.urlopen(f"{address[0]}api/runs") as answer:
            assert "first" in {run["name"] for run in json.load(answer)["runs"]}
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0


def test_a_checkpoint_is_talked_to(program, folder):
    assert run(program, folder, "chat checkpoints/ragen/first --max-tokens 5", "hello\n").strip()


def test_the_core_is_enough_to_play_and_train(core, tmp_path):
    """Without ray, wandb, matplotlib and the other extras; what needs one says which."""
    report = json.loads(run(core, tmp_path, "doctor --json"))
    assert {piece["name"] for piece in report["extras"] if not piece["problem"]} == set()
    few = f"{FEW} es_manager.val.env_configs.n_groups=[2,2] trainer.total_training_steps=1"
    run(core, tmp_path, f"train --config-name quickstart_bandit trainer.experiment_name=first {few}")
    assert (tmp_path / "checkpoints/ragen/first/global_step_1/actor/model.safetensors").is_file()
    shown = run(core, tmp_path, "demo --levels 4 trainer.total_training_steps=1 trainer.test_freq=1")
    assert "will not be drawn" in shown and "pip install 'ragen-agents[plot]'" in shown
    assert "FrozenLake, sampled: success" in shown
    two_gpus = """system.CUDA_VISIBLE_DEVICES="'0,1'" """
    asked = {
        "plot checkpoints/ragen/first": "plot",
        "view": "view",
        "train --config-name quickstart_bandit trainer.logger=[console,wandb]": "wandb",
        f"train --config-name quickstart_bandit trainer.n_gpus_per_node=2 {two_gpus}": "ray",
    }
    for line, extra in asked.items():
        result = start(core, tmp_path, line)
        assert result.returncode == 1, line
        assert f"pip install 'ragen-agents[{extra}]'" in result.stderr
