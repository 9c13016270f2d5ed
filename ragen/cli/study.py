"""`ragen study`: supervised training, reinforcement learning and both, compared.

Tested in tests/sweeps/test_base_study.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import num_seeds, positive
from ragen.sweeps.base_study import study


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="ragen study",
        description="SFT, RL and SFT + RL with the embedded models, with thoughts and without: a table with intervals "
        "over seeds. Under an hour on two cores; started again, it continues with what has not ended.",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--seeds", type=num_seeds, default=3, help="seeds of every run (3)")
    parser.add_argument("--slots", type=positive, default=2, help="runs at a time, a core each (2)")
    parser.add_argument("--out", type=Path, default=Path("results/base_study"), help="folder (results/base_study)")
    args = parser.parse_intermixed_args(argv)
    return study(args.out, args.overrides, num_seeds=args.seeds, num_slots=args.slots)
