"""`python train.py` and `ragen train`: load, build, fit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ragen.config import argument_parser, config_from_args
from ragen.errors import RagenError
from ragen.trainer.start import plan_start


def main(argv: Sequence[str] | None = None) -> int:
    parser = argument_parser("Train an agent by multi-turn reinforcement learning.")
    parser.prog = "python train.py"
    args = parser.parse_args(argv)
    try:
        config = config_from_args(args)
        if plan_start(config) is None:
            return 0
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", config.system.CUDA_VISIBLE_DEVICES)
        from ragen.trainer.restart import train  # torch, only after everything else is known to be right

        train(config)
    except RagenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from the newest checkpoint.", file=sys.stderr)
        return 130
    return 0
