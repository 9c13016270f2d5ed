"""`bash train.sh ENV key=value ...`: the base experiments as they were typed, on the normal trainer."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from ragen.config.load import load_config
from ragen.errors import INTERRUPTED, reporting_errors
from ragen.legacy.settings import Settings, read_settings
from ragen.legacy.translate import Change, run_kind, translate
from ragen.sft.config import load_sft

DEFAULT_ENV = "sokoban"
PROGRAMS = {"rl": "python train.py", "sft": "ragen sft"}


def main(argv: Sequence[str] | None = None, *, prog: str = "bash train.sh") -> int:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__, epilog="Keys: docs/legacy.md")
    parser.add_argument("--show", action="store_true", help="print what the command means today, and do nothing")
    parser.add_argument("words", nargs="*", metavar="ENV key=value", help="sokoban, frozenlake or two_armed_bandit")
    args = parser.parse_intermixed_args(argv)
    env, arguments = DEFAULT_ENV, args.words
    if arguments and "=" not in arguments[0]:
        env, *arguments = arguments
    return reporting_errors(
        lambda: run(env, arguments, is_shown=args.show), interrupted=INTERRUPTED, outlives_reader=not args.show
    )


def run(env: str, arguments: Sequence[str], *, is_shown: bool) -> int:
    """Translate, then show the result or hand it to its command."""
    settings = read_settings(env, arguments, os.environ)
    changes = translate(settings)
    if is_shown:
        show(settings, changes)
        return 0
    overrides = [change.override for change in changes]
    if run_kind(settings) == "sft":
        from ragen.sft.command import run as sft

        sft(*load_sft("base", overrides))
        return 0
    config = load_config("base", overrides)
    if config.trainer.seeds > 1:
        from ragen.sweeps.seeds import train_seeds

        return train_seeds(config, "base", None, overrides)
    from ragen.trainer.train import train

    return train(config)


def show(settings: Settings, changes: Sequence[Change]) -> None:
    """Every key of the command line with what it became, and the whole modern command."""
    kind = run_kind(settings)
    load = load_sft if kind == "sft" else load_config
    load("base", [change.override for change in changes])  # says what is wrong
    for key in sorted(settings.given):
        became = [change.override for change in changes if change.source == key]
        print(f"# {key}={settings[key]}  ->  {', '.join(became) or 'nothing of its own'}")
    lines = [PROGRAMS[kind], *(shlex.quote(change.override) for change in changes)]
    print(" \\\n    ".join(lines))


if __name__ == "__main__":
    sys.exit(main())
