"""`ragen check`: what silence, a random policy, the solver and the model earn.

Tested in tests/evaluation/test_check.py.
"""

from collections.abc import Sequence

from ragen.config import argument_parser, config_from_args
from ragen.evaluation.check import check


def main(argv: Sequence[str]) -> None:
    parser = argument_parser(
        "Check a configuration before a training: play some validation levels without a word, at random and with the "
        "solver, and say what each earns, with penalties, and whether silence pays."
    )
    parser.prog = "ragen check"
    parser.add_argument("--model", action="store_true", help="play the same levels with the model, too")
    args = parser.parse_args(argv)
    check(config_from_args(args), has_model=args.model)
