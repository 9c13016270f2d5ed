"""The completion scripts, in their shells where these are installed."""

import re
import shutil
import subprocess
import sys

import pytest

from ragen.cli import COMMANDS
from ragen.cli.completion import choices_in, config_keys, indented_words, words_of_commands
from ragen.config.load import config_names


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, str]:
    """Shell -> file."""
    folder, found = tmp_path_factory.mktemp("completion"), {}
    for shell in ("bash", "zsh", "fish"):
        words = [sys.executable, "-m", "ragen.cli", "completion", shell]
        (folder / shell).write_text(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        found[shell] = str(folder / shell)
    return found


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completion was not tried. Run: apt-get install {shell}")


def complete(shell: str, script: str, *words: str) -> set[str]:
    """What the shell offers for the last word."""
    need(shell)
    if shell == "fish":
        line = f"source {script}; complete -C '{' '.join(words)}'"
        out = subprocess.run(["fish", "-c", line], capture_output=True, text=True, check=True).stdout
        return {each.split("\t")[0] for each in out.splitlines()}
    listed = " ".join(f"'{word}'" for word in words)
    if shell == "bash":
        line = f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _ragen; echo ${{COMPREPLY[@]}}"
        return set(subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split())
    stubs = "compadd() { print -l -- $@ }; _describe() { print -l -- ${(P)2} }; _files() { }; compdef() { }"
    line = f"{stubs}; source {script}; words=({listed}); CURRENT={len(words)}; _ragen"
    out = subprocess.run(["zsh", "-f", "-c", line], capture_output=True, text=True, check=True).stdout
    offered = {each.split(":")[0] for each in out.splitlines()}  # the real compadd compares with what was typed
    return {each for each in offered if each.startswith(words[-1])}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell, scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = scripts[shell]
    assert complete(shell, script, "ragen", "swe") == {"sweep"}
    assert complete(shell, script, "ragen", "train", "--config-name", "quickstart_") == {
        "quickstart_bandit",
        "quickstart_sokoban",
    }
    assert complete(shell, script, "ragen", "train", "trainer.test_f") == {"trainer.test_freq="}
    assert complete(shell, script, "ragen", "sweep", "entr") == {"entropy"}
    assert complete(shell, script, "ragen", "eval", "--max-t") == {"--max-turn"}


def test_a_file_is_completed_in_bash(scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    assert complete("bash", scripts["bash"], "ragen", "plot", "check") == {"checkpoints"}


def test_every_command_has_its_options_and_second_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # as the command sets it
    words, options = words_of_commands()
    assert list(words) == list(options) == list(COMMANDS)
    assert words["sweep"] == ["top-p", "kl", "entropy", "grad-analysis", "probe-ckpt"]
    assert words["models"] == ["fetch", "convert"]
    assert words["plot"] == []
    assert {"--kl-values", "--seeds"} <= set(options["sweep"])
    assert all("--help" in found for found in options.values())


def test_words_of_a_help_text():
    text = "usage: x\n\n  {a,b-c}   one\n  run       a folder\n    fetch   get it\n  --seed N  a number\n"
    assert choices_in(text) == ["a", "b-c"]
    assert indented_words(text) == ["a", "b-c", "run", "fetch"]


def test_keys_are_those_that_hold_values():
    keys = config_keys()
    assert "trainer.test_freq" in keys and "trainer" not in keys
    assert not [key for key in keys if key.startswith("custom_envs")]
    assert all(re.fullmatch(r"[\w.]+", key) for key in [*keys, *config_names()])
