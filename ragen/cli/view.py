"""`ragen view`: runs as a live page in the browser, or as one file.

Tested in tests/view/test_server.py and tests/view/test_export.py.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.config.arguments import not_negative, whole_number
from ragen.view.export import EPISODES, export
from ragen.view.reading.folders import DEFAULTS
from ragen.view.server import HOST, PORT, TOKEN_VARIABLE, serve


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="ragen view", description="Show runs as a live page; nothing is changed.")
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="DIR", help=f"folders with runs (those of {' '.join(DEFAULTS)})"
    )
    parser.add_argument("--port", type=whole_number(0, 65535), help=f"{PORT}; 0 takes any that is free")
    parser.add_argument("--open", action="store_true", dest="opens_browser", help="open the page in the browser")
    parser.add_argument(
        "--host",
        help=f"address to listen on ({HOST}); another one than loopback is for everybody who has the token: that "
        f"of the variable {TOKEN_VARIABLE}, else one that is drawn and printed",
    )
    parser.add_argument(
        "--play",
        metavar="CHECKPOINT",
        help="a model that answers on the Play page: a run, a checkpoint or any model_path, such as tiny",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="write the page with its runs to one HTML file that opens from disk, and end",
    )
    parser.add_argument(
        "--episodes", type=not_negative, metavar="N", help=f"episodes of each run in the file ({EPISODES})"
    )
    args = parser.parse_intermixed_args(argv)
    if args.export is None:
        if args.episodes is not None:
            parser.error("--episodes is for --export; the live page shows all episodes")
        port = PORT if args.port is None else args.port
        host = args.host or HOST
        return serve(args.folders, host=host, port=port, opens_browser=args.opens_browser, play=args.play)
    if args.host is not None or args.port is not None or args.play is not None:
        parser.error("--export writes a file and listens nowhere; leave out --host, --port and --play")
    number = EPISODES if args.episodes is None else args.episodes
    export(args.folders, args.export, num_episodes=number, opens_browser=args.opens_browser)
