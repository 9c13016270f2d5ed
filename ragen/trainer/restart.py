"""A run that lost a worker goes on from its newest checkpoint, as often as trainer.max_restarts allows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ragen.config.schema import Config
from ragen.errors import WorkerError
from ragen.trainer.build import build_trainer
from ragen.trainer.checkpoint import LATEST

T = TypeVar("T")


def train(config: Config) -> int:
    """Build and fit; the exit code.

    A resumed run equals one that was never interrupted, and so does a restarted one.
    """

    def attempt() -> int:
        nonlocal config
        trainer = build_trainer(config)  # when this fails the folder may still hold another run's checkpoints
        if trainer is None:
            return 0
        try:
            return trainer.fit().exit_code
        except WorkerError:
            config = from_newest(config)
            raise

    return with_restarts(config.trainer.max_restarts, attempt)


def with_restarts(max_restarts: int, attempt: Callable[[], T]) -> T:
    """What `attempt` returns. When it loses a worker it is tried again, so many times."""
    for restarts_left in reversed(range(max_restarts)):
        try:
            return attempt()
        except WorkerError as error:
            print(f"error: {error}\nRestarting ({restarts_left} restarts left).", file=sys.stderr, flush=True)
    return attempt()


def from_newest(config: Config) -> Config:
    """The same run from its own newest checkpoint; as it was begun while there is none."""
    if not (Path(config.trainer.default_local_dir) / LATEST).exists():
        return config
    return replace(config, trainer=replace(config.trainer, resume_mode="auto", resume_from_path=None))
