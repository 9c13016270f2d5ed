"""`ragen list WHAT`: what a configuration may name, one sentence each, and where it comes from.

Tested in tests/api/test_listing.py.
"""

import argparse
from collections.abc import Sequence

from ragen.api.listing import KEYS, to_text


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen list", description="What there is to choose from in a configuration.")
    parser.add_argument("what", choices=KEYS, help="; ".join(f"{word} for {key}" for word, key in KEYS.items()))
    print(to_text(parser.parse_args(argv).what))
