"""`ragen diagnose`: what the numbers of runs say about their health.

Tested in tests/tracking/advisories/test_rules.py.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ragen.tracking.advisories.health import read_health
from ragen.tracking.advisories.rules import advise, with_episodes


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen diagnose",
        description="Say what the numbers of a run show, and what to do about it.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help="run directory")
    parser.add_argument("--json", action="store_true", help="print JSON: run directory -> advisories")
    args = parser.parse_intermixed_args(argv)
    found = {str(run): with_episodes(advise(read_health(run)), run) for run in args.runs}
    if args.json:
        print(json.dumps({run: [asdict(each) for each in advisories] for run, advisories in found.items()}, indent=2))
        return
    for run, advisories in found.items():
        if len(found) > 1:
            print(run)
        for each in advisories:
            print(each)
            for exhibit in each.episodes:
                print(f"  look at {exhibit}\n    {exhibit.command(Path(run))}")
