"""`ragen train` and `python train.py`: train an agent.

Tested in tests/trainer/test_bad_configs.py, tests/config/test_common.py and tests/sweeps/test_seeds.py.
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
    args = parser.parse_args(argv)
    config = config_from_args(args)
    if config.trainer.seeds > 1:
        from ragen.sweeps.seeds import train_seeds

        return train_seeds(config, args.config_name, args.config_dir, args.overrides)
    return train(config)
