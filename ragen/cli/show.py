"""`ragen show`: episodes of a run as text, board by board; as pictures on request.

Tested in tests/evaluation/test_command.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import positive
from ragen.evaluation.show import show_episodes
from ragen.types import Status


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen show", description="Print saved episodes as text.")
    parser.add_argument("path", type=Path, help="run directory or episode file (.jsonl.gz or .jsonl)")
    parser.add_argument("--policy", help="only the files whose name starts so (sampled, greedy, random, solver)")
    parser.add_argument("--rollout", help="only this file, for example train_step_50")
    parser.add_argument("--status", choices=[status.value for status in Status], help="only episodes that ended so")
    parser.add_argument("--seed", type=int, help="only episodes on this level")
    parser.add_argument("--member", type=int, help="only this member of a group")
    parser.add_argument("--limit", type=positive, default=3, help="most episodes to print (%(default)s)")
    parser.add_argument("--png", type=Path, metavar="DIR", help="also write a picture per turn into this folder")
    show_episodes(**vars(parser.parse_args(argv)))
