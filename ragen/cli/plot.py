"""`ragen plot`: the learning curve of a run, or of several seeds.

Tested in tests/plotting/test_learning_curve.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.plotting.learning_curve import print_learning_curve


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen plot", description="Draw the validation success of a run.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help="run directory; several are seeds")
    parser.add_argument("--out", type=Path, help="PNG file (learning_curve.png in the first run directory)")
    args = parser.parse_intermixed_args(argv)
    print_learning_curve(args.runs, args.out or args.runs[0] / "learning_curve.png")
