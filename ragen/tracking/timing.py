"""How long the stages of a step take, and what training and evaluation have taken so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ragen.tracking import names
from ragen.types import Metrics

# Parts of a step that are not training. What remains is timing_s/train_step.
NOT_TRAINING = ("testing", "save_checkpoint", "collapse_metrics")

PER_TOKEN_STAGES = ("gen", "old_log_prob", "ref", "values", "update_actor", "update_critic")
"""Stages whose time grows with the tokens of the batch."""

UNFINISHED = "unfinished"
# Running total -> the time of a step that it sums.
TOTALS = {
    "train_total": "train_step",
    "eval_total": "eval_step",
    "collapse_total": "collapse_metrics",
    "collapse_first_turn_total": "collapse_first_turn_step",
    "collapse_multi_turn_total": "collapse_multi_turn_step",
    "total": "step",
}


class Timers:
    """Times of stages, summed within a step, and totals over all steps.

    with timers("step"):
        with timers("gen"):
            ...                      # 3 s
        with timers("testing"):
            ...                      # 2 s
    timers.finish_step()             # timing_s/step 5, gen 3, testing 2, train_step 3, eval_step 2, total 5, ...
    """

    def __init__(
        self,
        *,
        on_stage: Callable[[str], None] = lambda _: None,
        synchronize: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`on_stage` is called with the name of each stage as it begins.

        `synchronize` waits for the device (torch.cuda.synchronize): kernels run on after the call that queued them,
        and their time would be counted in a later stage.
        """
        self._on_stage = on_stage
        self._synchronize = synchronize
        self._clock = clock
        self._stages: dict[str, float] = {}
        self._outermost = 0.0
        self._depth = 0
        self._began = 0.0
        """When the outermost stage began that is under way."""
        self._unfinished: dict[str, float] = {}
        """Stages of the step that was under way when the checkpoint was made that was loaded."""
        self._totals = dict.fromkeys(TOTALS, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a stage; the time counts when the stage raises, too. Stages may hold others."""
        self._on_stage(stage)
        started = self._now()
        if self._depth == 0:
            self._began = started
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            seconds = self._now() - started
            self.add(stage, seconds)
            if self._depth == 0:
                self._outermost += seconds

    def add(self, stage: str, seconds: float) -> None:
        """Count time of a stage that was measured elsewhere, inside another stage."""
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def finish_step(self, *, num_tokens: int | None = None, num_devices: int = 1) -> Metrics:
        """The timing metrics of the step that ended; the next one starts from zero.

        `num_tokens`, all tokens of the step's batch, gives timing_per_token_ms/<stage> and perf/*. What is timed
        outside a "step" (the validation before training) is a step of its own.
        """
        stages, self._stages = self._stages, {}
        stages.setdefault("step", self._outermost)
        self._outermost = 0.0
        step = stages["step"]
        stages["train_step"] = max(0.0, step - sum(stages.get(stage, 0.0) for stage in NOT_TRAINING))
        stages["eval_step"] = stages.get("testing", 0.0)
        for total, part in TOTALS.items():
            self._totals[total] += stages.get(part, 0.0)

        metrics = names.with_prefix(names.TIMING, stages | self._totals)
        if num_tokens:
            per_token = {stage: 1000 * stages[stage] / num_tokens for stage in PER_TOKEN_STAGES if stage in stages}
            metrics |= names.with_prefix(names.TIMING_PER_TOKEN, per_token)
        if num_tokens is not None:
            throughput = num_tokens / step / num_devices if step > 0 else 0.0
            speed = {"total_num_tokens": float(num_tokens), "time_per_step": step, "throughput": throughput}
            metrics |= names.with_prefix(names.PERFORMANCE, speed)
        return metrics

    def to_json(self) -> dict[str, Any]:
        """The running totals, for the checkpoint, and the stages of a step that is under way."""
        is_under_way = self._depth > 0
        return {**self._totals, UNFINISHED: self._stages | {"step": self._now() - self._began} if is_under_way else {}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue the totals of a checkpoint."""
        self._totals = {total: float(state.get(total, 0.0)) for total in TOTALS}
        self._unfinished = {stage: float(seconds) for stage, seconds in state.get(UNFINISHED, {}).items()}

    def continue_step(self) -> None:
        """Count what the step that was under way had taken, where its rest is done now."""
        for stage, seconds in self._unfinished.items():
            self.add(stage, seconds)
        self._unfinished = {}

    def load_metrics(self, metrics: Mapping[str, float]) -> None:
        """Continue the totals that a step logged."""
        self._totals |= {stage: value for stage, value in names.below(names.TIMING, metrics).items() if stage in TOTALS}

    def _now(self) -> float:
        self._synchronize()
        return self._clock()
