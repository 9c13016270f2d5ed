"""The checkpoints of a run in progress: when one is due, what it holds, and what a signal saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from ragen.config.trainer import TrainerConfig
from ragen.tracking import names
from ragen.trainer.checkpoint import name_best, named_checkpoint, rotate, save_checkpoint
from ragen.trainer.held_out import PlayedLevels
from ragen.types import Metrics
from ragen.workers.base import Workers, savers, saves_all


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
    ) -> None:
        """`facts` are written into every checkpoint; `parts`: name in the state -> what is saved and loaded.

        `describe` writes the model card of the actor.
        """
        self.describe = describe
        self.config, self.workers, self.facts, self.parts = config, workers, facts, parts
        self.played, self.start_step, self.root = played, start_step, Path(config.default_local_dir)
        self.newest: Point | None = None
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

    def save(self, point: Point) -> None:
        """Write a checkpoint and remove those that are too old."""
        if self.resumed is None or point.step != self.start_step:  # else its weights are there already
            state = point.state | {"played_levels": self.played.to_json(point.num_levels)}
            save_checkpoint(
                self.root,
                point.step,
                savers(self.workers),
                state if saves_all(self.workers) else None,
                cards={"actor": self.describe(point)},
            )
        point.is_saved = True
        if self.best is not None and self.best["step"] == point.step:
            name_best(self.root, point.step)
        keep = {"actor": self.config.max_actor_ckpt_to_keep, "critic": self.config.max_critic_ckpt_to_keep}
        rotate(self.root, keep, latest=point.step)

    def save_newest(self) -> str:
        """Save the newest step that a signal left whole, where checkpoints are wanted; what was done, in words."""
        if self.config.save_freq <= 0:
            return "nothing is saved (trainer.save_freq)"
        if self.newest is None:
            return "no step was done yet" if self.start_step == 0 else f"no step was done since {self.start_step}"
        if not self.newest.is_saved:
            self.save(self.newest)
        return f"step {self.newest.step} is saved"

    def last_good(self) -> str:
        """Where the weights were still finite."""
        newest = named_checkpoint(self.root)
        return f"The last good checkpoint is {newest}." if newest else "No checkpoint was saved before."
