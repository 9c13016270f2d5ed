"""Who imports whom in the package, read from the source."""

import ast
import importlib.util
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "ragen"


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


DECLARATIONS = {"engine.registry"}
"""Modules that are a part of their own: tables that import nothing of ragen, so that every layer may read them."""


def part_of(path: Path) -> str:
    """The first name below `ragen`: ragen/env/base.py -> env, ragen/types.py -> types."""
    return part_named(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


def part_named(name: str) -> str:
    """The part of a name below `ragen`: engine.base.Request -> engine, engine.registry.ENGINES -> engine.registry"""
    return next((part for part in DECLARATIONS if f"{name}.".startswith(f"{part}.")), name.split(".")[0])


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
    parts = {part_named(name.removeprefix("ragen.")) for name in imports_of(path) if name.startswith("ragen.")}
    return {part for part in parts if not part.startswith("__")} - {part_of(path)}
