"""`ragen train` and `python train.py`: train an agent.

Tested in tests/trainer/test_bad_configs.py and tests/config/test_common.py.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ragen.config import argument_parser, config_from_args
from ragen.config.common import help_of_keys
from ragen.trainer.train import train


def main(argv: Sequence[str]) -> int:
    parser = argument_parser("Train an agent by multi-turn reinforcement learning.")
    parser.prog = "python train.py" if Path(sys.argv[0]).name == "train.py" else "ragen train"
    parser.appendix = help_of_keys
    return train(config_from_args(parser.parse_args(argv)))
