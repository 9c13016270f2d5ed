"""Every module that does something is tested where one looks for it, or says where instead."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "ragen").rglob("*.py"))


def has_behaviour(tree: ast.Module) -> bool:
    """Functions or methods; tables and records alone have nothing to test."""
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def test_files_of(module: Path) -> list[Path]:
    """Where one looks for the tests of a module.

    ragen/engine/graph/pages.py -> tests/engine/graph/test_pages.py, tests/engine/test_graph_pages.py
    """
    *rooms, name = module.with_suffix("").parts[1:]
    homes = [Path(*rooms, f"test_{name}.py"), Path(*rooms[:1], f"test_{'_'.join([*rooms[1:], name])}.py")]
    return [Path("tests") / home for home in homes]


test_files_of.__test__ = False  # type: ignore[attr-defined]


def test_the_two_homes_of_a_test():
    assert [str(p) for p in test_files_of(Path("ragen/engine/graph/pages.py"))] == [
        "tests/engine/graph/test_pages.py",
        "tests/engine/test_graph_pages.py",
    ]
    assert str(test_files_of(Path("ragen/seeding.py"))[0]) == "tests/test_seeding.py"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_with_behaviour_has_its_tests(module: Path):
    tree = ast.parse((ROOT / module).read_text())
    if module.name in {"__init__.py", "__main__.py"} or not has_behaviour(tree):
        return
    named = re.findall(r"Tested in\s+(tests/\S+?\.py)", ast.get_docstring(tree) or "")
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"{module} says that it is tested in {missing}, which do not exist"
    homes = test_files_of(module)
    assert named or any((ROOT / home).exists() for home in homes), (
        f"{module} has no test file. Write {homes[0]}, or end its docstring with: Tested in tests/<room>/test_<x>.py."
    )
