"""What is no Python and yet needed at run time comes along in the wheel."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ragen"


def packaged() -> set[Path]:
    """The files that the patterns of pyproject.toml find."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["ragen"]
    return {path for pattern in patterns for path in PACKAGE.glob(pattern) if path.is_file()}


def test_every_other_file_of_the_package_is_in_the_wheel():
    others = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others <= packaged(), f"add to package-data in pyproject.toml: {sorted(map(str, others - packaged()))}"


def test_the_glossary_is_the_page_of_the_docs():
    assert (PACKAGE / "tracking" / "metrics.md").read_bytes() == (ROOT / "docs" / "metrics.md").read_bytes()
