"""A run that lost a worker goes on from its newest checkpoint, as often as trainer.max_restarts allows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ragen.config.schema import Config
from ragen.errors import WorkerError
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoint import LATEST


def train(config: Config) -> None:
    """Build and fit. A resumed run equals one that was never interrupted, and so does a restarted one."""
    for restarts_left in reversed(range(config.trainer.max_restarts + 1)):
        trainer = None
        try:
            trainer = build_trainer(config)
            if trainer is not None:
                trainer.fit()
            return
        except WorkerError as error:
            if not restarts_left:
                raise
            print(f"error: {error}\nRestarting ({restarts_left - 1} restarts left).", file=sys.stderr, flush=True)
            if trainer is not None:  # before that the folder may still hold another run's checkpoints
                config = from_newest(config)


def from_newest(config: Config) -> Config:
    """The same run from its own newest checkpoint; as it was begun while there is none."""
    if not (Path(config.trainer.default_local_dir) / LATEST).exists():
        return config
    return replace(config, trainer=replace(config.trainer, resume_mode="auto", resume_from_path=None))
