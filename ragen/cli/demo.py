"""`ragen demo`: the embedded models play three environments; then one of them is trained, and its curve drawn.

Tested in tests/test_readme.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import positive
from ragen.evaluation.demo import QUICKSTARTS, demo

DESCRIPTION = "The embedded models play three environments; then one of them is trained, and its curve drawn."


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen demo", description=DESCRIPTION)
    parser.add_argument("--env", choices=QUICKSTARTS, default="frozen_lake", help="what to train on (%(default)s)")
    parser.add_argument("--play-only", action="store_true", help="print the table and do not train")
    parser.add_argument("--levels", type=positive, default=256, help="validation levels of each game (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/demo"), help="run directories go here (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the training configuration")
    demo(**vars(parser.parse_intermixed_args(argv)))
