"""Imports go one way, and what needs no torch does not load it (the layers of DESIGN and HOUSE_STYLE)."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "ragen"

# Lower layers first. A part may import from its own layer and from those before it.
LAYERS = [
    {"types", "errors", "files", "streams", "text", "seeding", "config"},
    {"env", "algorithms", "tracking", "models"},
    {"modeling"},
    {"engine", "llm_agent"},
    {"learners"},
    {"distributed"},
    {"workers"},
    {"diagnostics", "trainer"},
    {"evaluation", "sft", "sweeps", "legacy"},
    {"cli", "demo", "__main__"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

# These read run directories, and nothing that produced them.
READERS = {"plotting", "viewer"}
READERS_MAY_IMPORT = {"types", "errors", "files", "text", "config", "algorithms", "tracking"}

# The modules that may import a heavy optional package.
HOMES = {"vllm": {"engine/vllm"}, "ray": {"distributed/ranks.py", "sweeps"}}

WITHOUT_TORCH = ["config", "env", "tracking"] + [reader for reader in sorted(READERS) if (PACKAGE / reader).exists()]


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    """The first name below `ragen`: ragen/env/base.py -> env, ragen/types.py -> types."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(tree: ast.AST, package: str) -> set[str]:
    """Full names of all that is imported anywhere in a module of `package`, inside functions too.

    What a module does when it is run as a program is left out: there it is on top of everything.

    "from ..types import Turn" in package "ragen.env" -> {"ragen.types.Turn"}
    """
    names: set[str] = set()
    main_blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "__main__" in ast.unparse(n.test)]
    skipped = {inner for block in main_blocks for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def imports_of(path: Path) -> set[str]:
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    return imported_names(ast.parse(path.read_text(), filename=str(path)), package)


def parts_imported_by(path: Path) -> set[str]:
    parts = {name.split(".")[1] for name in imports_of(path) if name.startswith("ragen.")}
    return {part for part in parts if not part.startswith("__")} - {part_of(path)}


def test_relative_and_lazy_imports_are_seen():
    source = "from ..types import Turn\ndef build():\n    import ragen.trainer.build\n    from . import base\n"
    names = imported_names(ast.parse(source), "ragen.env")
    assert names == {"ragen.types.Turn", "ragen.trainer.build", "ragen.env.base"}


def test_every_part_has_a_layer():
    unknown = {part_of(path) for path in modules()} - RANK.keys() - READERS
    assert not unknown, f"{sorted(unknown)} are in no layer. Add them to LAYERS in {__file__}."


def test_imports_go_one_way():
    upward = [
        f"{path.relative_to(PACKAGE.parent)} imports ragen.{part}"
        for path in modules()
        if part_of(path) in RANK
        for part in sorted(parts_imported_by(path))
        if RANK.get(part, len(LAYERS) - 2) > RANK[part_of(path)]  # readers count as the last layer below the cli
    ]
    assert not upward, "a layer may import its own and lower ones:\n" + "\n".join(upward)


def test_plotting_and_viewer_read_run_directories_only():
    strangers = [
        f"{path.relative_to(PACKAGE.parent)} imports ragen.{part}"
        for path in modules()
        if part_of(path) in READERS
        for part in sorted(parts_imported_by(path) - READERS_MAY_IMPORT - READERS)
    ]
    assert not strangers, f"readers may import {sorted(READERS_MAY_IMPORT)}:\n" + "\n".join(strangers)


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_package_lives_behind_one_module(library: str):
    users = {path.relative_to(PACKAGE) for path in modules() if library in {n.split(".")[0] for n in imports_of(path)}}
    homes = {Path(home) for home in HOMES[library]}
    strays = {str(user) for user in users if user not in homes and not homes & set(user.parents)}
    assert not strays, f"{library} is imported outside {HOMES[library]}: {strays}"


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_torch_is_not_loaded_by(part: str):
    """A fresh interpreter imports the part with all its modules; torch must not come along."""
    code = (
        f"import importlib, pkgutil, sys, ragen.{part} as part\n"
        "for module in pkgutil.walk_packages(getattr(part, '__path__', []), part.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "sys.exit('torch was loaded' if 'torch' in sys.modules else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
