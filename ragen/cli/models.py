"""`ragen models`: what there is, how to fetch it, and how to convert a GGUF file.

Tested in tests/models/test_fetch.py and tests/models/test_gguf_model.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.models.catalogue import CATALOGUE
from ragen.models.fetch import fetch_model
from ragen.models.gguf_model import convert_gguf
from ragen.models.listing import models_table


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen models", description="List models, fetch one from its registry, or convert a GGUF file."
    )
    commands = parser.add_subparsers(dest="command", metavar="fetch NAME | convert FILE DIR")
    fetch = commands.add_parser("fetch", help="download a catalogue model and convert it to a Hugging Face directory")
    fetch.add_argument("name", metavar="NAME", help=f"one of: {', '.join(CATALOGUE)}")
    convert = commands.add_parser("convert", help="turn a GGUF file into a Hugging Face directory")
    convert.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the GGUF file, or its pieces in order")
    convert.add_argument("folder", metavar="DIR", type=Path, help="the new folder")
    convert.add_argument(
        "--tokenizer", metavar="DIR", type=Path, help="folder of the original tokenizer; default: the one in the file"
    )
    convert.add_argument("--sha256", metavar="HASH", default="", help="of the whole file; of all pieces together")
    args = parser.parse_args(argv)
    if args.command is None:
        print(models_table())
    elif args.command == "fetch":
        fetch_model(args.name)
    else:
        convert_gguf(args.files, args.folder, tokenizer=args.tokenizer, sha256=args.sha256)
