"""`ragen view`: runs as a live page in the browser.

Tested in tests/view/test_server.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import whole_number
from ragen.view.folders import DEFAULTS
from ragen.view.server import HOST, PORT, TOKEN_VARIABLE, serve


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen view", description="Show runs as a live page; nothing is changed.")
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="DIR", help=f"folders with runs (those of {' '.join(DEFAULTS)})"
    )
    parser.add_argument(
        "--port", type=whole_number(0, 65535), default=PORT, help="%(default)s; 0 takes any that is free"
    )
    parser.add_argument("--open", action="store_true", dest="opens_browser", help="open the page in the browser")
    parser.add_argument(
        "--host",
        default=HOST,
        help="address to listen on (%(default)s); another one than loopback is for everybody who has the token: that "
        f"of the variable {TOKEN_VARIABLE}, else one that is drawn and printed",
    )
    serve(**vars(parser.parse_args(argv)))
