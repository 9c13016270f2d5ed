"""Imports go one way, and what needs no torch does not load it (docs/architecture.md)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.imports import PACKAGE, imported_names, imports_of, modules, part_of, parts_imported_by

# Lower layers first. A part may import from its own layer and from those before it.
LAYERS = [
    {"types", "errors", "files", "sockets", "streams", "text", "seeding", "engine.registry", "config"},
    {"env", "algorithms", "tracking", "models"},
    {"studies"},
    {"plotting"},
    {"modeling"},
    {"engine", "llm_agent"},
    {"view"},
    {"learners"},
    {"distributed"},
    {"workers"},
    {"diagnostics", "trainer"},
    {"evaluation"},
    {"api"},
    {"sft"},
    {"sweeps"},
    {"reproduce"},
    {"legacy", "doctor"},
    {"cli"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

# These read run directories, and nothing that produced them.
READERS = {"plotting", "view"}
READERS_MAY_IMPORT = {"types", "errors", "files", "text", "config", "algorithms", "tracking", "studies"}
# Boards are drawn with the symbols of the environments, tokens with the tokenizer of the model; levels are played with
# the prompts of a rollout. None of that loads torch, see below.
VIEW_MAY_IMPORT = {"sockets", "env", "models", "llm_agent", "engine"}

# The modules that may import a heavy optional package.
HOMES = {"vllm": {"engine/vllm"}, "ray": {"distributed/ranks.py", "sweeps"}}

WITHOUT_TORCH = ["config", "env", "models", "tracking", "studies"] + [
    reader for reader in sorted(READERS) if (PACKAGE / reader).exists()
]


def test_relative_and_lazy_imports_are_seen():
    source = "from ..types import Turn\ndef build():\n    import ragen.trainer.build\n    from . import base\n"
    names = imported_names(ast.parse(source), "ragen.env")
    assert names == {"ragen.types.Turn", "ragen.trainer.build", "ragen.env.base"}


def test_every_part_has_a_layer():
    unknown = {part_of(path) for path in modules()} - RANK.keys()
    assert not unknown, f"{sorted(unknown)} are in no layer. Add them to LAYERS in {__file__}."


def test_imports_go_one_way():
    upward = [
        f"{path.relative_to(PACKAGE.parent)} imports ragen.{part}"
        for path in modules()
        for part in sorted(parts_imported_by(path))
        if RANK[part] > RANK[part_of(path)]
    ]
    assert not upward, "a layer may import its own and lower ones:\n" + "\n".join(upward)


def test_readers_read_run_directories_only():
    strangers = [
        f"{path.relative_to(PACKAGE.parent)} imports ragen.{part}"
        for path in modules()
        if part_of(path) in READERS
        for part in sorted(parts_imported_by(path) - READERS_MAY_IMPORT - READERS)
        if not (part_of(path) == "view" and part in VIEW_MAY_IMPORT)
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
