"""`ragen scaling RUN RUN ...`: models of several sizes in one table and one figure.

Tested in tests/plotting/test_scaling.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.errors import ConfigError
from ragen.plotting.scaling import compare_runs


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen scaling", description="Compare runs of models of several sizes: one table, one figure."
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", type=Path, default=Path("results/scaling"), help="folder of both (%(default)s)")
    parser.add_argument("--seeds", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args(argv)
    if args.seeds is not None:
        raise ConfigError(
            f"--seeds {args.seeds}: ragen scaling reads runs that have ended and starts none. Train every model with "
            "trainer.seeds=N and give all their folders: those that differ in their seed are one row, with an interval "
            "over seeds."
        )
    compare_runs(args.runs, args.out)
