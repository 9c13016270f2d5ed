"""The checkpoints of a run in progress: when one is due, what it holds, and what a signal saves.

Where the CPU has memory for it, a checkpoint is copied there, which the loop waits for, and written beside the steps
that follow. Until it has its name it does not count: a run that is killed before resumes from the one before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from ragen.config.trainer import TrainerConfig
from ragen.errors import RagenError
from ragen.modeling.host_memory import free_host_memory, given_back
from ragen.tracking import names
from ragen.trainer.checkpoints.background import Background
from ragen.trainer.checkpoints.checkpoint import name_best, named_checkpoint, rotate, save_checkpoint
from ragen.trainer.held_out import PlayedLevels
from ragen.types import Metrics
from ragen.workers.base import Saver, Workers, savers, saves_all, snapshots

GIB = 2**30
SPARE = 1.25
"""Copies are taken where so many times their size and a GiB are free: files on their way to the disk need some, too."""


class Stateful(Protocol):
    """A part of the trainer that a resumed run continues."""

    def to_json(self) -> Any: ...

    def load(self, state: Any, /) -> None: ...


@dataclass(kw_only=True, slots=True)
class StepOutcome:
    """What a step logged, and why the run ends with it, if it does."""

    step: int
    metrics: Metrics
    stop: str | None = None
    """The rule of the early stop."""
    num_tokens: int = 0
    """Tokens of the batch that was trained on."""
    is_complete: bool = False
    """Validation, early stop and checkpoint are done as well. A signal may come before."""


@dataclass(kw_only=True, slots=True)
class Point:
    """A step whose updates are done: what a checkpoint of that moment holds."""

    step: int
    state: dict[str, Any]
    """What a resumed run continues from, but for the played levels: there may be millions, and few points are saved."""
    num_levels: int
    """How many levels had been played."""
    is_saved: bool = False
    """A checkpoint of it is whole and has its name."""


class Checkpointer:
    """Writes checkpoints, and remembers the newest step that a signal may save."""

    def __init__(
        self,
        config: TrainerConfig,
        workers: Workers,
        *,
        facts: Mapping[str, Any],
        parts: Mapping[str, Stateful],
        played: PlayedLevels,
        start_step: int,
        describe: Callable[[Point], str],
        announce: Callable[[str], None] = print,
    ) -> None:
        """`facts` are written into every checkpoint; `parts`: name in the state -> what is saved and loaded.

        `describe` writes the model card of the actor; `announce` says what whoever runs this should know.
        """
        self.describe, self.announce = describe, announce
        self.is_background = False
        """Checkpoints are copied, and written beside training."""
        self._writing = Background()
        self._seconds: float | None = None
        self.config, self.workers, self.facts, self.parts = config, workers, facts, parts
        self.played, self.start_step, self.root = played, start_step, Path(config.default_local_dir)
        self.newest: Point | None = None
        self.updating: int | None = None
        """The step whose update was begun last; until there is its point, the models are of no step."""
        self.best: dict[str, float] | None = None
        """Step and mean success of the best validation so far."""
        self.resumed: StepOutcome | None = None
        """What the step of the newest checkpoint logged, when the run continues from it."""

    def is_due(self, step: int) -> bool:
        return step >= self.config.total_training_steps or step % max(1, self.config.save_freq) == 0

    def is_best(self, step: int, validation: Metrics) -> bool:
        """Whether no validation before had as much success; with several environments the mean counts."""
        found = names.by_tag(validation, names.VALIDATION, names.SUCCESS).values()
        success = fmean(found) if found else math.nan
        is_best = self.config.keep_best and success > (self.best["success"] if self.best else -math.inf)
        if is_best:
            self.best = {"step": step, "success": success}
        return is_best

    def point_of(self, outcome: StepOutcome) -> Point:
        """What a checkpoint of this moment holds, beside weights and moments.

        The metrics of the step are logged after the checkpoint, with the time it took. A run killed in between finds
        them here.
        """
        state = {
            "step": outcome.step,
            **self.facts,
            **{name: part.to_json() for name, part in self.parts.items()},
            "metrics": dict(outcome.metrics),
            "stop": outcome.stop,
            "num_tokens": outcome.num_tokens,
            "is_complete": outcome.is_complete,
            "best": self.best,
        }
        return Point(step=outcome.step, state=state, num_levels=len(self.played))

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a checkpoint; those of earlier versions lack some of it."""
        for name, part in self.parts.items():
            if name in state:
                part.load(state[name])
        self.played.load(state.get("played_levels"))
        if self.config.keep_best and state.get("best"):
            self.best = dict(state["best"])
            name_best(self.root, int(self.best["step"]))
        if self.config.resume_mode == "auto":
            self.resumed = StepOutcome(
                step=self.start_step,
                metrics=dict(state["metrics"]),
                stop=state["stop"],
                num_tokens=state.get("num_tokens", 0),
                is_complete=state.get("is_complete", True),
            )
            if self.resumed.is_complete:
                num_levels = len(self.played)
                self.newest = Point(step=self.start_step, state=dict(state), num_levels=num_levels, is_saved=True)

    def begin_update(self, step: int) -> None:
        """Forget the newest point: what is trained from now on is no longer what it says, and not yet the next one."""
        self.newest, self.updating = None, step

    def prepare(self, *, last_step: int) -> None:
        """Get memory for copies, where steps up to `last_step` follow a save; say where there is none."""
        config, next_due = self.config, (self.start_step // max(1, self.config.save_freq) + 1) * self.config.save_freq
        first = self.start_step + 1 if config.keep_best else next_due
        if config.save_freq <= 0 or first >= last_step:
            return
        self.is_background = True
        if why := self._no_room():
            self._stop_copying(why)
        else:
            self.workers.reserve_snapshots()

    def _no_room(self, *, retaken: float = 0.0) -> str:
        """Why nothing can be copied; empty where it can. `retaken`: bytes that the next steps will take once more."""
        need = self.workers.snapshot_bytes()
        if need is None:
            return "what they hold is gathered from several processes"
        free, wanted = free_host_memory(), SPARE * need + GIB + self.workers.moments_to_come() + retaken
        if need == 0 or free >= wanted:
            return ""
        return (
            f"a copy takes {need / GIB:.1f} GiB of the CPU's memory, and {free / GIB:.1f} GiB are free where "
            f"{wanted / GIB:.1f} GiB are wanted"
        )

    def _stop_copying(self, why: str) -> None:
        self.is_background = False
        self.announce(f"Training waits while checkpoints are written: {why}.")

    def _snapshots(self) -> dict[str, Saver] | None:
        """Copies of what is trained at this moment; None where there is no memory for them, now or ever after.

        Memory is looked at again, because other runs may have taken it since the start, and because only the first
        steps show what an update takes.
        """
        why = self._no_room(retaken=given_back())
        if not why:
            try:
                return snapshots(self.workers)
            except (MemoryError, OSError, RuntimeError) as error:  # torch raises the last one
                why = f"there is no memory for a copy ({_in_words(error)})"
        self._stop_copying(why)
        return None

    def save(self, point: Point) -> None:
        """Save a checkpoint and remove those that are too old; what was begun before is waited for.

        In the background it is written when this returns only after `wait`.
        """
        self.wait()
        if self.resumed is not None and point.step == self.start_step:  # its weights are there already
            self._rotate(point)
            return
        state = point.state | {"played_levels": self.played.to_json(point.num_levels)}
        copied = self._snapshots() if self.is_background else None
        write = partial(
            self._write,
            point,
            copied or savers(self.workers),
            state if saves_all(self.workers) else None,
            card=self.describe(point),
        )
        if copied:
            self._writing.begin(write)
        else:
            write()

    def _write(self, point: Point, roles: Mapping[str, Saver], state: Mapping[str, Any] | None, *, card: str) -> None:
        began = time.monotonic()
        save_checkpoint(self.root, point.step, roles, state, cards={"actor": card})
        self._rotate(point)
        self._seconds = time.monotonic() - began

    def _rotate(self, point: Point) -> None:
        """Name a checkpoint that is whole the best one, if it is, and remove those that are too old."""
        point.is_saved = True
        if (point.state.get("best") or {}).get("step") == point.step:
            name_best(self.root, point.step)
        keep = {"actor": self.config.max_actor_ckpt_to_keep, "critic": self.config.max_critic_ckpt_to_keep}
        rotate(self.root, keep, latest=point.step)

    def wait(self) -> None:
        """Until what was begun is on the disk; what went wrong is raised."""
        self._writing.wait()

    def check(self) -> None:
        """Raise what went wrong with a checkpoint that was begun."""
        self._writing.check()

    def settle(self) -> str:
        """Wait as a run fails for another reason; what went wrong with the checkpoint, in words."""
        try:
            self.wait()
        except Exception as error:  # that for which the run fails is the one to report
            return _in_words(error)
        return ""

    def take_seconds(self) -> float | None:
        """How long a checkpoint was written that is whole since the last call."""
        seconds, self._seconds = self._seconds, None
        return seconds

    def save_newest(self) -> str:
        """Save the newest step that a signal left whole, where checkpoints are wanted; what was done, in words."""
        if self.config.save_freq <= 0:
            return "nothing is saved (trainer.save_freq)"
        if self.newest is None and self.updating is not None:
            return f"nothing is saved, because the models are in the middle of step {self.updating}"
        if self.newest is None:
            return "no step was done yet" if self.start_step == 0 else f"no step was done since {self.start_step}"
        self.wait()
        if not self.newest.is_saved:
            self.save(self.newest)
            self.wait()
        return f"step {self.newest.step} is saved"

    def last_good(self) -> str:
        """Where the weights were still finite."""
        lost, newest = self.settle(), named_checkpoint(self.root)
        found = f"The last good checkpoint is {newest}." if newest else "No checkpoint was saved before."
        return f"{lost} {found}".strip()


def _in_words(error: Exception) -> str:
    """Our own errors speak for themselves; others may have no text at all."""
    return str(error) if isinstance(error, RagenError) else f"{type(error).__name__}: {error}".removesuffix(": ")
