"""What `python train.py` and `ragen train` do: plan the start, build a trainer, fit it.

A run that lost a worker resumes from its newest checkpoint by itself, as often as trainer.max_restarts allows.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ragen.config.schema import Config
from ragen.errors import WorkerError
from ragen.tracking.lock import run_lock
from ragen.trainer.checkpoints.checkpoint import named_checkpoint
from ragen.trainer.endings.ending import read_ending
from ragen.trainer.endings.signals import Signals
from ragen.trainer.starting.devices import export_devices
from ragen.trainer.starting.start import plan_start

T = TypeVar("T")


def train(config: Config) -> int:
    """Train as the configuration says; the exit code."""
    root = Path(config.trainer.default_local_dir)
    with Signals(), ExitStack() as held:
        # A validation of a checkpoint leaves the folder of the run alone; a folder that is not there is nobody's.
        is_writer = not config.trainer.val_only
        if is_writer and root.is_dir():
            held.enter_context(run_lock(root))
        start = plan_start(config)
        if start.is_over:
            ending = read_ending(root, total_steps=config.trainer.total_training_steps)
            print(*start.notes, *([ending] if ending else []), sep="\n", flush=True)
            return ending.exit_code if ending else 0
        if is_writer:
            held.enter_context(run_lock(root))
        export_devices(config)
        # The first sign of life: loading takes seconds.
        model, watch = config.actor_rollout_ref.model.path, f"ragen view {shlex.quote(str(root))}"
        print(f"Loading torch and {model}; the run goes to {root}. Watch it: {watch}", flush=True)
        return _fit(config)


def _fit(config: Config) -> int:
    """Build and fit; the exit code.

    A resumed run equals one that was never interrupted, and so does a restarted one.
    """
    from ragen.trainer.build import build_trainer  # torch, only after everything else is known to be right

    def attempt() -> int:
        nonlocal config
        trainer = build_trainer(config)  # when this fails the folder may still hold another run's checkpoints
        if trainer is None:
            return 0
        try:
            return trainer.fit().exit_code
        except WorkerError:
            if named_checkpoint(Path(config.trainer.default_local_dir)):  # of this run; else it starts as it was begun
                config = replace(config, trainer=replace(config.trainer, resume_mode="auto", resume_from_path=None))
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
