"""`ragen config`: print the resolved configuration.

Tested in tests/config/test_show.py.
"""

from collections.abc import Sequence

from ragen.config import argument_parser, config_from_args
from ragen.config.show import to_text


def main(argv: Sequence[str]) -> None:
    parser = argument_parser("Print the resolved configuration; the output is a config file by itself.")
    parser.prog = "ragen config"
    parser.add_argument("--json", action="store_true", help="print JSON without comments")
    args = parser.parse_args(argv)
    print(to_text(config_from_args(args), as_json=args.json))
