"""The `ragen` command: one word per task, each with its own --help.

Every word of COMMANDS has a module here, with dashes as underscores: it parses its arguments in main(argv) and makes
one call into the room that does the work. A module is imported only when its word is typed. One more command is a
module, a row of COMMANDS and a test in tests/cli.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from ragen import __version__
from ragen.config.strict import did_you_mean
from ragen.errors import INTERRUPTED, reporting_errors


class Command(NamedTuple):
    """One word of `ragen`."""

    sentence: str
    is_long: bool = False
    """Long work continues when whoever reads its output leaves; PRINTING ends."""
    interrupted: str = "Interrupted."
    """What Ctrl-C prints."""


COMMANDS = {
    "demo": Command("play the embedded models, train one and draw its curve", is_long=True),
    "eval": Command("evaluate a model on the validation levels", is_long=True),
    "chat": Command("talk to a model or a checkpoint"),
    "view": Command("show runs as a live page in the browser"),
    "show": Command("print saved episodes as text or pictures"),
    "train": Command("train an agent (the same as python train.py)", is_long=True, interrupted=INTERRUPTED),
    "sft": Command("train a model on demonstrations of the solver, and validate it", True, INTERRUPTED),
    "verify-resume": Command("prove that a killed and resumed run equals the straight one", is_long=True),
    "study": Command("compare SFT, RL and both, with thoughts and without", is_long=True),
    "reproduce": Command("settle published claims: run what is missing, print the verdict", is_long=True),
    "sweep": Command("run an experiment over several values or seeds, with a report", is_long=True),
    "replay-filter": Command("show which groups each rollout filter would have kept"),
    "compare": Command("say whether one arm of runs is better than another, and how many seeds are missing"),
    "plot": Command("draw the validation success of a run"),
    "diagnose": Command("say what the numbers of a run show: healthy, or what is wrong and what to do"),
    "scaling": Command("compare runs of models of several sizes"),
    "check": Command("say what silence, a random policy and the solver earn, before a training"),
    "gradients": Command("print or draw the gradient analyses of a run"),
    "collapse": Command("draw how a run's reasoning depends on the prompt"),
    "list": Command("say what a configuration may name: environments, estimators, filters, losses, engines, trackers"),
    "serve": Command("serve an environment by OpenEnv's protocol, for other trainers"),
    "config": Command("print the resolved configuration with a sentence per key"),
    "models": Command("list, fetch and convert models that need no hub"),
    "doctor": Command("say what is installed, what is missing and what it would give"),
    "completion": Command("print a script by which bash, zsh or fish completes commands, configurations and keys"),
    "legacy": Command("train by a command line of the first release (the same as bash train.sh)"),
    "search": Command("the hyper-parameter search of the base experiments"),
}


PRINTING = {"-h", "--help", "--list", "--plan", "--dry-run"}
"""Options with which long commands print and start nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    argv = [*(sys.argv[1:] if argv is None else argv)]  # the name `list` belongs to a command here
    if not argv or argv[0] in ("-h", "--help"):
        return reporting_errors(lambda: print(usage()))
    word, *rest = argv
    if word == "--version":
        print(f"ragen {__version__}")
        return 0
    if word not in COMMANDS:
        print(f"ragen: unknown command {word!r}.{did_you_mean(word, COMMANDS)} All: ragen --help", file=sys.stderr)
        return 2
    command = COMMANDS[word]

    def run() -> int | None:
        return import_module(f"ragen.cli.{word.replace('-', '_')}").main(rest)

    is_work = command.is_long and PRINTING.isdisjoint(rest)
    return reporting_errors(run, interrupted=command.interrupted, outlives_reader=is_work)


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {word:<{width}}  {command.sentence}" for word, command in COMMANDS.items()]
    return "\n".join(["usage: ragen COMMAND ...   (ragen COMMAND --help)", "", *lines])
