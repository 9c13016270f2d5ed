"""`ragen plot`: the learning curve of a run.

Tested in tests/plotting/test_learning_curve.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.plotting.learning_curve import print_learning_curve


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen plot", description="Draw the validation success of a run.")
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--out", type=Path, help="PNG file (RUN/learning_curve.png)")
    args = parser.parse_args(argv)
    print_learning_curve(args.run, args.out or args.run / "learning_curve.png")
