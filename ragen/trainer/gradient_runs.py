"""Gradient analysis inside the loop, and the runs that are made for it alone.

trainer.gradient_analysis_only         no model is updated; a run from a checkpoint analyses the checkpoint's own
                                       step instead of the next one
trainer.exit_after_gradient_analysis   the run ends with its first analysis, before the actor is updated
"""

from __future__ import annotations

from collections.abc import Sequence

from ragen.algorithms.rollout_filter import FilterResult
from ragen.config.trainer import TrainerConfig
from ragen.diagnostics.gradient_reporter import GradientReporter
from ragen.learners.batch import Batch
from ragen.tracking import names
from ragen.tracking.timing import Timers
from ragen.types import Group, Metrics


class GradientRuns:
    """Analyses when an analysis is due, and knows what a gradient-only run does differently."""

    def __init__(self, config: TrainerConfig, reporter: GradientReporter, timers: Timers, *, start_step: int) -> None:
        self.config, self.reporter, self.timers = config, reporter, timers
        self.is_frozen = config.gradient_analysis_only
        """No model is updated."""
        self.is_probe = self.is_frozen and start_step > 0
        """The run analyses the step of its checkpoint instead of resuming from it."""
        self.first_step = start_step if self.is_probe else start_step + 1

    @property
    def last_step(self) -> int:
        """The step that this run ends with, unless it is stopped before."""
        steps = range(self.first_step, self.config.total_training_steps)
        return next(filter(self.is_exit, steps), self.config.total_training_steps)

    def validates_before(self, step: int) -> bool:
        """A probe that is asked to validate does so within its step: it has no step 0."""
        return self.is_probe and self.config.val_before_train and step == self.first_step

    def is_exit(self, step: int) -> bool:
        """Whether the run ends with the analysis of this step."""
        return self.config.exit_after_gradient_analysis and self.config.is_analysed(step)

    def saves_at(self, step: int) -> bool:
        return self.config.save_at_gradient_analysis and self.config.is_analysed(step)

    def analyse(self, step: int, groups: Sequence[Group], kept: FilterResult, batch: Batch | None) -> Metrics:
        """The metrics of the analysis, when one is due; `batch` is None when the filter kept nothing."""
        if not self.config.is_analysed(step):
            return {}
        with self.timers("gradient_analysis"):
            metrics = self.reporter(step, groups, kept, batch)
        return metrics | ({names.EXITED: 1.0} if self.is_exit(step) else {})
