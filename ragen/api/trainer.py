"""A training run in Python: an iterator of steps, or the four stages of a step one by one.

Both compute, log and save what `python train.py` does, bit for bit; a run begun by one is resumed by the other.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - before the hook below: what is registered last is called first
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakSet

from ragen.config.schema import Config
from ragen.errors import ConfigError, RagenError
from ragen.trainer.endings.ending import Ending, read_ending
from ragen.trainer.starting.devices import export_devices
from ragen.trainer.starting.start import plan_start
from ragen.types import Episode, Group, Metrics

if TYPE_CHECKING:
    from ragen.learners.batch import Batch
    from ragen.trainer.agent_trainer import AgentTrainer, Filtered, Scored
    from ragen.trainer.checkpoints.checkpointer import StepOutcome

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A training step that is done and logged."""

    number: int
    """From 1 to `trainer.total_training_steps`."""
    metrics: Metrics
    """What metrics.jsonl holds of it; docs/metrics.md explains each name."""
    stop: str | None
    """The rule of an early stop, where the run ends with this step."""


@dataclass(kw_only=True, slots=True)
class _Open:
    """A step whose stages are under way."""

    number: int
    before: Metrics
    write_episodes: Callable[[], object] | None = None
    """Begins to write the episodes, beside the update."""
    filtered: Filtered | None = None
    scored: Scored | None = None


class Trainer:
    """A training run. Iterate over it, and every step is validated, logged and saved as the configuration says:

        for step in ragen.Trainer(config):
            print(step.number, step.metrics["train/Bandit/success"])

    Or take the stages of a step yourself, and change what passes from one to the next:

        with ragen.Trainer(config) as trainer:
            while not trainer.is_over:
                episodes = trainer.rollout()
                groups = trainer.filter(episodes)
                batch = trainer.score(groups)
                step = trainer.update(batch)

    Left before its last step, the run is saved where `trainer.save_freq` is positive, and resumes with the next
    Trainer of the same configuration. `trainer.max_restarts` is for `python train.py` alone.
    """

    config: Config
    ending: Ending | None
    """How the run ended, once it has; printed as a report."""

    def __init__(self, config: Config, *, device: str | None = None) -> None:
        """Check everything that can be checked before torch is loaded; a mistake is a ConfigError.

        Args:
            config: From `ragen.load_config`.
            device: Such as `cpu` or `cuda`; None takes a GPU where there is one.
        """
        if config.trainer.seeds > 1:
            raise ConfigError(
                f"trainer.seeds is {config.trainer.seeds}: that is several runs, which `python train.py` starts. Set "
                "trainer.seeds=1, and make a Trainer for each seed.train."
            )
        plan_start(config)
        self.config, self.ending, self._device = config, None, device
        self._held: ExitStack | None = None
        self._thread = threading.current_thread()
        """That which opened the run."""
        self._inner: AgentTrainer | None = None
        self._numbers: Iterator[int] = iter(())
        self._open: _Open | None = None
        self._step_time, self._recording = ExitStack(), ExitStack()

    # --- the run ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Load the models and do what comes before the first step: validation, preflight, or resuming."""
        if self._held is not None:
            raise RagenError("This Trainer is open already.")
        export_devices(self.config)
        from ragen.trainer.build import build_trainer  # torch

        self._thread = threading.current_thread()
        _open_trainers.add(self)  # while it is being opened, too: a thread may be doing that as Python ends
        with ExitStack() as held:
            self._inner = build_trainer(self.config, device=self._device)
            if self._inner is None:  # it has come to its end before
                total_steps = self.config.trainer.total_training_steps
                self.ending = read_ending(Path(self.config.trainer.default_local_dir), total_steps=total_steps)
            else:
                held.enter_context(self._inner.running())
                self._inner.cause = self._inner.begin()
                self._numbers = iter(self._inner.steps_left)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        self._recording.close()
        self._step_time.close()
        if held is None:
            return
        if kind is GeneratorExit:  # a loop over the steps was left by `break`
            kind = error = traceback = None
        try:
            held.__exit__(kind, error, traceback)
        finally:
            _open_trainers.discard(self)
            if self._inner is not None:
                self.ending = self._inner.ending

    def __iter__(self) -> Iterator[Step]:
        """Every step that is left. Outside of `with`, the run is opened, and closed when the loop is left."""
        if self._held is not None:
            yield from self._steps()
        else:
            with self:
                yield from self._steps()

    def _steps(self) -> Iterator[Step]:
        while not self.is_over:
            self._refuse_open_step()
            inner = self._running()
            yield self._finish(inner.step(next(self._numbers)))

    def close(self) -> None:
        """End the run here; `with` does so by itself."""
        self.__exit__(None, None, None)

    @property
    def is_over(self) -> bool:
        """There is no further step: all are done, or an early stop ended the run."""
        return self._held is not None and (self._inner is None or self._inner.cause is not None)

    @property
    def agent_trainer(self) -> AgentTrainer:
        """The trainer behind this one, for what is not offered here: `workers`, `validate`, `checkpoints`."""
        return self._running()

    # --- the stages of a step ---------------------------------------------------------------------------------------

    def rollout(self) -> list[Episode]:
        """Begin the next step: play its levels with the model as it is now."""
        inner = self._running()
        self._refuse_open_step()
        number = next(self._numbers)
        self._step_time.enter_context(inner.timers("step"))
        self._open = _Open(number=number, before=inner.validate_before(number))
        return inner.rollout(number)

    def filter(self, episodes: list[Episode]) -> list[Group]:
        """Record the episodes of this step, and return the groups that the rollout filter keeps of them.

        Where dropped groups are refilled (`es_manager.train.refill`), the list grows by the episodes played for it.
        """
        inner, step = self._running(), self._stage("filter", "rollout", self._open)
        if step.filtered is not None:
            raise RagenError(f"The episodes of step {step.number} are filtered already. Score the groups to keep.")
        step.write_episodes = self._recording.enter_context(inner.recorder.training(step.number, episodes))
        step.filtered = inner.filter(step.number, episodes)
        return step.filtered.result.kept

    def score(self, groups: Sequence[Group]) -> Batch | None:
        """A batch of these groups with log-probs, values, rewards and advantages; None of no groups."""
        inner, step = self._running(), self._stage("score", "rollout", self._open)
        filtered = self._stage("score", "filter", step.filtered)
        kept_ratio = len(groups) / len(filtered.groups) if filtered.groups else 0.0
        step.scored = inner.score(step.number, groups, kept_ratio=kept_ratio)
        return step.scored.batch

    def update(self, batch: Batch | None) -> Step:
        """Train on the batch, validate, log and save as is due; the step is done."""
        inner, step = self._running(), self._stage("update", "rollout", self._open)
        filtered = self._stage("update", "filter", step.filtered)
        scored = self._stage("update", "score", step.scored)
        assert step.write_episodes is not None
        step.write_episodes()
        outcome = inner.update(step.number, filtered, replace(scored, batch=batch))
        self._recording.close()
        outcome.metrics |= step.before
        inner.conclude(outcome)
        self._step_time.close()
        self._open = None
        outcome.metrics |= inner.timing(outcome)
        return self._finish(outcome)

    def _finish(self, outcome: StepOutcome) -> Step:
        self._running().log(outcome)
        return Step(number=outcome.step, metrics=dict(outcome.metrics), stop=outcome.stop)

    def _running(self) -> AgentTrainer:
        if self._held is None:
            raise RagenError("This Trainer is not open. Use it in `with ragen.Trainer(config) as trainer:`.")
        if self._inner is None or self._inner.cause is not None:
            why = self._inner.cause.reason if self._inner is not None and self._inner.cause else "it had ended before"
            raise RagenError(f"The run has no further step: {why}. Ask `trainer.is_over` first.")
        return self._inner

    def _refuse_open_step(self) -> None:
        if self._open is not None:
            raise RagenError(f"Step {self._open.number} is under way. Finish it: filter, score, update.")

    def _stage(self, stage: str, before: str, made: T | None) -> T:
        if made is None:
            raise RagenError(f"{stage}() comes after {before}(). Call rollout, filter, score and update in this order.")
        return made


_open_trainers: WeakSet[Trainer] = WeakSet()


def _close_open_trainers() -> None:
    """Python ends while runs are open: save and close them as long as threads can be started and modules imported."""
    here = threading.current_thread()
    for thread in {trainer._thread for trainer in _open_trainers} - {here}:
        if not thread.daemon:  # Python waits for it in any case, but later, when its run can start no thread any more
            thread.join()
    for trainer in list(_open_trainers):
        if trainer._thread is not here and trainer._thread.is_alive():
            continue  # a daemon in the middle of a step: it ends as by a kill, with its newest checkpoint
        try:
            trainer.close()
        except BaseException:  # the other runs are saved all the same
            traceback.print_exc()


# atexit comes too late: concurrent.futures starts no thread any more.
threading._register_atexit(_close_open_trainers)  # type: ignore[attr-defined]
# A forked process has the memory of its parent, and this hook; the runs remain the parent's.
os.register_at_fork(after_in_child=_open_trainers.clear)
