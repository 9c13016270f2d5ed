"""`ragen gradients`: the gradient analyses of a run, as text and as figures.

Tested in tests/plotting/test_gradient_command.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="ragen gradients", description="The gradient analyses of a run.")
    parser.add_argument(
        "part",
        choices=["table", "plot", "steps"],
        help="table: signal and noise, bucket by bucket; plot: one figure per step; steps: three steps in one figure",
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of this part: ragen gradients PART --help")
    args = parser.parse_args(argv)
    prog = f"ragen gradients {args.part}"
    if args.part == "table":
        from ragen.plotting.gradient_table import main as table

        return table(args.options, prog=prog)
    if args.part == "plot":
        from ragen.plotting.gradient_command import main as plot

        return plot(args.options, prog=prog)
    from ragen.plotting.step_grid import main as steps

    return steps(args.options, data=Path("gradient_analysis/data"), prog=prog)
