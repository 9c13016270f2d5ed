"""`ragen train` and `python train.py`: train an agent.

Tested in tests/trainer/test_bad_configs.py.
"""

from collections.abc import Sequence

from ragen.config import argument_parser, config_from_args
from ragen.trainer.train import train


def main(argv: Sequence[str]) -> int:
    parser = argument_parser("Train an agent by multi-turn reinforcement learning.")
    parser.prog = "python train.py"
    return train(config_from_args(parser.parse_args(argv)))
