"""`ragen replay-filter`: which groups each rollout filter would have kept.

Tested in tests/evaluation/test_replay_filter.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import finite
from ragen.evaluation.replay_filter import replay_run


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen replay-filter",
        description="Show which groups each rollout filter would have kept, from the saved episodes of a run.",
    )
    parser.add_argument("path", type=Path, help="run directory or episode file (.jsonl.gz or .jsonl)")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="try this one filter instead of the panel, e.g. rollout_filter_strategy=min_p rollout_filter_value=0.5; "
        "keys that are not given are those of the run",
    )
    parser.add_argument(
        "--files",
        metavar="PATTERN",
        help="episode files whose name matches (those of training, or all where there are none)",
    )
    parser.add_argument("--per-step", action="store_true", help="a table for every file, with the groups it would keep")
    parser.add_argument(
        "--reward-scale",
        type=finite,
        default=1.0,
        metavar="X",
        help="multiply every reward by X first: softmax filters then choose differently, linear ones do not",
    )
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object per file and filter")
    replay_run(**vars(parser.parse_intermixed_args(argv)))
