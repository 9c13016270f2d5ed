"""`ragen gradients`: the gradient analyses of a run, as text and as figures.

Tested in tests/plotting/test_gradient_command.py.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ragen.plotting import gradient_command, gradient_table, step_grid

PARTS = {
    "table": gradient_table.main,
    "plot": gradient_command.main,
    "steps": partial(step_grid.main, data=Path("gradient_analysis/data")),
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="ragen gradients", description="The gradient analyses of a run.")
    parser.add_argument(
        "part",
        choices=PARTS,
        help="table: signal and noise, bucket by bucket; plot: one figure per step; steps: three steps in one figure",
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of this part: ragen gradients PART --help")
    args = parser.parse_args(argv)
    return PARTS[args.part](args.options, prog=f"ragen gradients {args.part}")
