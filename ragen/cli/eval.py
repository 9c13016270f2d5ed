"""`ragen eval`: play the validation levels with a model.

Tested in tests/evaluation/test_command.py.
"""

from collections.abc import Sequence
from pathlib import Path

from ragen.config import argument_parser
from ragen.evaluation.command import MODES, OWN_CONFIG, evaluate


def main(argv: Sequence[str]) -> None:
    parser = argument_parser(
        "Play the validation levels with a model and print success, actions, pass@k and reward beside a random "
        "policy and the solver. A word without = is the model: a run (its newest checkpoint), a checkpoint, a folder, "
        "a hub name, tiny.",
        default_config_name=OWN_CONFIG,
    )
    parser.prog = "ragen eval"
    parser.add_argument("--max-turn", type=int, metavar="N", help="most turns of an episode, and enough actions")
    parser.add_argument("--max-actions", type=int, metavar="N", help="most actions of an episode")
    parser.add_argument("--mode", choices=MODES, default="both", help="how replies are drawn (%(default)s)")
    parser.add_argument("--no-reference", action="store_true", help="leave out the random policy and the solver")
    parser.add_argument("--best", action="store_true", help="the model is a run: take its best (trainer.keep_best)")
    where = "run directory (local_log_dir/experiment_name_TIME, both of trainer)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=where)
    evaluate(**vars(parser.parse_args(argv)))
