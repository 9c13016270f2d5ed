"""The commands we document are the commands there are."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def make_commands(markdown: str) -> set[str]:
    """The targets of every `make ...` that a page shows as code, in a fenced block or between backticks.

    "run `make lint types`, make sure it passes" -> {"lint", "types"}
    """
    fenced = re.findall(r"^```.*?\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?\n.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    code = "\n".join(fenced + re.findall(r"`([^`\n]+)`", prose))
    arguments = re.findall(r"^(?:\$ )?\s*make +([^#\n]+)", code, flags=re.MULTILINE)
    words = " ".join(arguments).split()
    return {word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)}  # not VARIABLE=value


def test_only_code_counts_as_a_command():
    page = "run `make lint types`, make sure it passes\n```bash\n$ make test  # a minute\nPYTHON=x\n```\n"
    assert make_commands(page) == {"lint", "types", "test"}


@pytest.mark.parametrize("page", ["README.md"])
def test_every_make_command_is_a_target(page: str):
    commands = make_commands((ROOT / page).read_text())
    assert "test" in commands, f"{page} shows how to run the tests"
    assert commands <= make_targets(), f"{page} names targets that the Makefile lacks: {commands - make_targets()}"


def test_ci_is_the_documented_commands_and_nothing_hidden():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert lines == ["make lint", "make types", "make browser", "make test"]


def test_help_describes_every_target():
    described = set(re.findall(r"^([a-z][a-z-]*):.*## \S", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert described == make_targets()
