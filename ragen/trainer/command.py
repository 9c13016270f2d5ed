"""What `python train.py` and `ragen train` do: plan the start, build, fit."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from ragen.config import Config
from ragen.tracking.lock import RunLock
from ragen.trainer.ending import say_how_it_ended
from ragen.trainer.signals import Signals
from ragen.trainer.start import plan_start


def run(config: Config) -> int:
    """Train as the configuration says; the exit code."""
    root = Path(config.trainer.default_local_dir)
    with Signals(), ExitStack() as held:
        # A validation of a checkpoint leaves the folder of the run alone; a folder that is not there is nobody's.
        is_writer = not config.trainer.val_only
        if is_writer and root.is_dir():
            held.enter_context(RunLock(root))
        if plan_start(config) is None:
            return say_how_it_ended(root, total_steps=config.trainer.total_training_steps)
        if is_writer:
            held.enter_context(RunLock(root))
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", config.system.CUDA_VISIBLE_DEVICES)
        # The first sign of life: loading takes seconds.
        print(f"Loading torch and {config.actor_rollout_ref.model.path}; the run goes to {root}.", flush=True)
        from ragen.trainer.restart import train  # torch, only after everything else is known to be right

        return train(config)
