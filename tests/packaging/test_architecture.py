"""The map, docs/architecture.md, is true: every room, who imports whom, and the names behind its links."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.imports import PACKAGE, modules, part_of, parts_imported_by

MAP = PACKAGE.parent / "docs" / "architecture.md"
CHANGES = 19
"""The rows of "Where do I change ..."."""


def rooms() -> dict[str, set[str]]:
    """Each row of the table of rooms: | [`engine`](../ragen/engine/__init__.py) | sentence | `types`, `errors` |"""
    rows = re.findall(r"^\| \[`([\w.]+)`\]\(\.\./ragen/\S+\) \|[^|]+\| ([^|]*) \|$", MAP.read_text(), re.MULTILINE)
    return {room: set(re.findall(r"`([\w.]+)`", imports)) for room, imports in rows}


def named_links() -> list[tuple[str, str]]:
    """Links whose text is a name in code and whose target is a module: [`train_step`](../ragen/...py)."""
    return re.findall(r"\[`([\w.]+)`\]\(\.\./(\S+?\.py)\)", MAP.read_text())


@cache
def names_in(path: Path) -> set[str]:
    """Functions, classes, methods and variables of a module: {"AgentTrainer", "AgentTrainer.train_step", ...}"""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    visit(ast.parse(path.read_text()).body, "")
    return found


def test_every_room_is_on_the_map_with_those_it_imports():
    actual: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        actual[part_of(path)] |= parts_imported_by(path)
    assert rooms() == dict(actual)


@pytest.mark.parametrize(("name", "target"), sorted(set(named_links())))
def test_what_the_map_names_is_there(name, target):
    path = PACKAGE.parent / target
    is_room = name in rooms() and name.split(".")[-1] in (path.stem, path.parent.name)
    assert is_room or name in names_in(path), f"{target} has no {name}"


def test_the_map_says_where_to_change_things():
    section = MAP.read_text().split("## Where do I change", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "](../" in line]
    assert len(rows) == CHANGES


def test_every_package_says_what_lives_there():
    silent = [
        str(path.relative_to(PACKAGE.parent))
        for path in sorted(PACKAGE.rglob("__init__.py"))
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []
