"""`ragen completion SHELL`: a script by which a shell completes commands, options, configurations and keys.

The script holds every word, so that completing starts no Python; write it anew after an update. Words are taken from
the help of each command and from the configuration itself. Tested in tests/cli/test_completion.py.
"""

import argparse
import contextlib
import io
import os
import re
from collections.abc import Sequence

from ragen.cli import COMMANDS
from ragen.cli import main as ragen
from ragen.config.hints import list_paths
from ragen.config.load import compose, config_names

OPTION = re.compile(r"^ +(?:-\w, )?(--[a-z][\w-]*)", re.MULTILINE)
INSTALL = {
    "bash": "ragen completion bash > ~/.local/share/bash-completion/completions/ragen",
    "zsh": "ragen completion zsh > ~/.zfunc/_ragen   (with fpath+=~/.zfunc before compinit)",
    "fish": "ragen completion fish > ~/.config/fish/completions/ragen.fish",
}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen completion",
        description="Print a completion script: commands, options, names of configurations and keys.",
        epilog="For good: " + "; ".join(INSTALL.values()),
    )
    parser.add_argument("shell", choices=INSTALL)
    shell = parser.parse_args(argv).shell
    os.environ["COLUMNS"] = "1000"  # lines of help that do not wrap
    words, options = words_of_commands()
    write = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell]
    print(write(words, options, config_names(), config_keys()))


def words_of_commands() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Command -> its second words (`ragen sweep kl`), and -> all its options, those of second words included."""
    words: dict[str, list[str]] = {}
    options: dict[str, list[str]] = {}
    for command in COMMANDS:
        text = help_of(command)
        below = {word: help_of(command, word) for word in indented_words(text)}
        below = {word: each for word, each in below.items() if each.startswith(f"usage: ragen {command} {word}")}
        words[command] = list(below) or choices_in(text)
        found = {option for each in (text, *below.values()) for option in OPTION.findall(each)}
        options[command] = sorted(found)
    return words, options


def help_of(*command: str) -> str:
    """What `ragen COMMAND --help` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        ragen([*command, "--help"])
    return out.getvalue()


def indented_words(text: str) -> list[str]:
    """What may be a second word: "  kl   how strongly ...", "  {table,plot}   ..."; arguments look alike."""
    return choices_in(text) + re.findall(r"^ {2,4}([a-z][\w-]*) {2,}\S", text, re.MULTILINE)


def choices_in(text: str) -> list[str]:
    """The words of an argument that has a few: "  {bash,zsh,fish}" """
    found = re.search(r"^  \{([\w,-]+)\}", text, re.MULTILINE)
    return found[1].split(",") if found else []


def config_keys() -> list[str]:
    """Every key that holds a value; environments' own options are left out."""
    paths = [path for path in list_paths(compose("base")) if not path.startswith("custom_envs")]
    return [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]


def bash_script(words: dict[str, list[str]], options: dict[str, list[str]], configs: list[str], keys: list[str]) -> str:
    cases = "\n".join(
        f'        {command}) words="{" ".join([*words[command], *options[command]])}";;' for command in words
    )
    return f"""# bash completion of ragen
_ragen_keys="{" ".join(f"{key}=" for key in keys)}"
_ragen() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(words)} --help --version" -- "$current"))
        return
    fi
    if [ "$previous" = --config-name ]; then
        COMPREPLY=($(compgen -W "{" ".join(configs)}" -- "$current"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ "$words" == *--config-name* && "$current" == [a-z]* ]]; then
        COMPREPLY+=($(compgen -W "$_ragen_keys" -- "$current"))
    fi
    [[ "${{COMPREPLY[0]}}" == *= ]] && compopt -o nospace 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$current"))
}}
complete -o filenames -F _ragen ragen"""


def zsh_script(words: dict[str, list[str]], options: dict[str, list[str]], configs: list[str], keys: list[str]) -> str:
    cases = "\n".join(
        f"        {command}) words_here=({' '.join([*words[command], *options[command]])});;" for command in words
    )
    described = "\n".join(f"        {quoted(f'{word}:{command.sentence}')}" for word, command in COMMANDS.items())
    return f"""#compdef ragen
_ragen() {{
    local -a commands words_here keys
    local previous="${{words[CURRENT-1]}}" command="${{words[2]}}"
    commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    if [[ "$previous" == --config-name ]]; then
        compadd -- {" ".join(configs)}
        return
    fi
    words_here=()
    case "$command" in
{cases}
    esac
    compadd -- $words_here
    if (( ${{words_here[(I)--config-name]}} )); then
        keys=({" ".join(f"{key}=" for key in keys)})
        compadd -S '' -- $keys
    fi
    _files
}}
if [ "$funcstack[1]" = "_ragen" ]; then _ragen "$@"; else compdef _ragen ragen; fi"""


def fish_script(words: dict[str, list[str]], options: dict[str, list[str]], configs: list[str], keys: list[str]) -> str:
    lines = ["# fish completion of ragen"]
    for word, command in COMMANDS.items():
        lines.append(f"complete -c ragen -n __fish_use_subcommand -f -a {word} -d {quoted(command.sentence)}")
    for word in words:
        here = f"-n '__fish_seen_subcommand_from {word}'"
        if words[word]:
            lines.append(f"complete -c ragen {here} -a {quoted(' '.join(words[word]))}")
        for option in options[word]:
            values = f" -x -a {quoted(' '.join(configs))}" if option == "--config-name" else ""
            lines.append(f"complete -c ragen {here} -l {option.removeprefix('--')}{values}")
    takers = " ".join(word for word in words if "--config-name" in options[word])
    listed = " ".join(f"{key}=" for key in keys)
    lines.append(f"complete -c ragen -n '__fish_seen_subcommand_from {takers}' -a {quoted(listed)}")
    return "\n".join(lines)


def quoted(text: str) -> str:
    """A word in single quotes, which bash, zsh and fish read alike."""
    return "'" + text.replace("'", "’") + "'"
