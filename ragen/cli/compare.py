"""`ragen compare`: is one arm of runs better than another?

Tested in tests/sweeps/test_compare.py.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import share
from ragen.errors import RagenError
from ragen.studies.comparison import SMALLEST
from ragen.sweeps.compare import compare_arms

ARMS = "RUN [RUN ...] -- RUN [RUN ...] [-- RUN ...]"


def main(argv: Sequence[str]) -> None:
    options, *rest = split(argv)
    parser = argparse.ArgumentParser(
        prog="ragen compare",
        usage=f"ragen compare [--names A,B] [--difference D] [--json] {ARMS}",
        description="Compare arms of finished runs with the first. Runs are paired by seed.train, levels by seed.",
        epilog="Options stand before the first --.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directory; several are seeds")
    parser.add_argument("--names", metavar="A,B", help="names of the arms (their first runs')")
    parser.add_argument(
        "--difference", type=share, default=SMALLEST, metavar="D",
        help="the difference of success that is worth finding; says how many seeds are missing (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a record instead of tables")
    args = parser.parse_args(options)
    late = [word for words in rest for word in words if word.startswith("-") and not Path(word).exists()]
    if late:
        raise RagenError(f"{late[0]} stands behind a --, where runs are expected. Options stand before the first --.")
    arms = [args.runs, *([Path(word) for word in words] for words in rest)]
    if len(arms) < 2 or not all(arms):
        raise RagenError(f"Give at least two arms, separated by --: ragen compare {ARMS}")
    names = args.names.split(",") if args.names else [arm[0].name for arm in arms]
    if len(names) != len(arms) or len(set(names)) < len(names):
        given = f"--names {','.join(names)}" if args.names else f"The arms' first runs are called {', '.join(names)}"
        raise RagenError(
            f"{given}: {len(arms)} arms need as many different names. Give them first: ragen compare --names A,B ..."
        )
    sys.stdout.write(compare_arms(names, arms, smallest=args.difference, as_json=args.json))


def split(argv: Sequence[str]) -> list[list[str]]:
    """[a, --, b, c] -> [[a], [b, c]]"""
    parts: list[list[str]] = [[]]
    for word in argv:
        if word == "--":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
