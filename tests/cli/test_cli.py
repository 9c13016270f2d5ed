"""The table of commands, and the modules behind it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ragen import __version__, cli
from ragen.cli import COMMANDS, main

MODULES = {word: word.replace("-", "_") for word in COMMANDS}


def test_every_module_is_a_command_and_every_command_a_module():
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - {"__init__", "__main__"}
    assert files == set(MODULES.values())


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_helps_without_torch_and_without_the_other_commands(word):
    code = (
        "import sys\nfrom ragen.cli import main\n"
        f"try:\n    main([{word!r}, '--help'])\n"
        "except SystemExit:\n    pass\n"
        "loaded = {name.removeprefix('ragen.cli.') for name in sys.modules if name.startswith('ragen.cli.')}\n"
        f"sys.exit(f'loaded {{loaded}}' if loaded != {{{MODULES[word]!r}}} or 'torch' in sys.modules else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: ")


def test_no_word_and_help_list_every_command(capsys):
    for argv in ([], ["--help"]):
        assert main(argv) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[2:]] == list(COMMANDS)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ragen {__version__}\n"


def test_an_unknown_command_gets_a_suggestion(capsys):
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "ragen: unknown command 'trian'. Did you mean train? All: ragen --help\n"


def test_the_module_is_the_command():
    result = subprocess.run([sys.executable, "-m", "ragen.cli", "config", "--json"], capture_output=True, text=True)
    assert (result.returncode, result.stdout[:2]) == (0, "{\n")
