"""The `ragen` command: one word per task, each with its own --help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ragen import __version__
from ragen.config.strict import did_you_mean
from ragen.errors import reporting_errors

COMMANDS = {
    "demo": ("ragen.evaluation.demo", "play the embedded models, train one and draw its curve"),
    "eval": ("ragen.evaluation.command", "evaluate a model on the validation levels"),
    "show": ("ragen.evaluation.show", "print saved episodes as text or pictures"),
    "train": ("ragen.trainer.command", "train an agent (the same as python train.py)"),
    "sft": ("ragen.sft.command", "train a model on demonstrations of the solver, and validate it"),
    "verify-resume": ("ragen.trainer.verify_resume", "prove that a killed and resumed run equals the straight one"),
    "study": ("ragen.sweeps.base_study", "compare SFT, RL and both, with thoughts and without"),
    "sweep": ("ragen.sweeps.command", "run an experiment over several values or seeds, with a report"),
    "replay-filter": ("ragen.evaluation.replay_filter", "show which groups each rollout filter would have kept"),
    "plot": ("ragen.plotting.learning_curve", "draw the validation success of a run"),
    "scaling": ("ragen.plotting.scaling", "compare runs of models of several sizes"),
    "config": ("ragen.config.show", "print the resolved configuration with a sentence per key"),
    "models": ("ragen.models.commands", "list and fetch models that need no hub"),
}
"""Word -> module with main(argv), sentence."""
LONG_WORK = {"demo", "eval", "train", "sft", "verify-resume", "study", "sweep"}
"""Commands that go on when whoever reads their output leaves."""


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help"):
        return reporting_errors(lambda: print(usage()))
    if argv[0] == "--version":
        print(f"ragen {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        print(f"ragen: {argv[0]!r} is no command.{did_you_mean(argv[0], COMMANDS)}\n\n{usage()}", file=sys.stderr)
        return 2
    return reporting_errors(
        lambda: import_module(COMMANDS[argv[0]][0]).main(argv[1:]), outlives_reader=argv[0] in LONG_WORK
    )


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {word:<{width}}  {sentence}" for word, (_, sentence) in COMMANDS.items()]
    return "\n".join(["usage: ragen COMMAND ...   (ragen COMMAND --help)", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
