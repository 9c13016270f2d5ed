"""When a run is over before its last step: the reward variance is gone, validation fails, or nothing is left to train.

Early stopping is part of the protocol of a sweep: a setting that stops early counts as a failed regime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from ragen.config.trainer import EarlyStopConfig
from ragen.tracking.names import IN_GROUP_REWARD_STD, KEPT_COUNT, SUCCESS, VALIDATION, by_tag, join


@dataclass(kw_only=True, slots=True)
class EarlyStopState:
    """What has been seen so far; saved with every checkpoint."""

    baseline: list[float] = field(default_factory=list)
    """The first reward deviations of the run."""
    window: list[float] = field(default_factory=list)
    """The latest reward deviations after the baseline."""
    low_success: dict[str, int] = field(default_factory=dict)
    """Validations in a row below the threshold, by metric."""
    num_empty: int = 0
    """Steps in a row that the filter left empty."""


class EarlyStop:
    """Watches three signals; each method returns the rule that ends the run, or None."""

    def __init__(self, config: EarlyStopConfig, *, empty_stop_steps: int) -> None:
        self.config, self.empty_stop_steps = config, empty_stop_steps
        self.state = EarlyStopState()

    def after_filter(self, metrics: Mapping[str, float]) -> str | None:
        """How many groups the filter kept, and how much the rewards vary within groups, before filtering."""
        if not metrics[KEPT_COUNT]:
            self.state.num_empty += 1
            return "empty_filtered_steps" if 0 < self.empty_stop_steps <= self.state.num_empty else None
        self.state.num_empty = 0
        return self._after_reward_std(metrics[IN_GROUP_REWARD_STD])

    def _after_reward_std(self, in_group_std: float) -> str | None:
        """Stops when a whole window stays below `variance_factor` times the mean of the first steps."""
        state, config = self.state, self.config
        if len(state.baseline) < config.variance_baseline_steps:
            state.baseline.append(in_group_std)
            return None
        state.window = [*state.window, in_group_std][-max(1, config.variance_window) :]
        limit = config.variance_factor * fmean(state.baseline)
        is_full = 0 < config.variance_window == len(state.window)
        return "reward_variance_collapse" if is_full and all(std < limit for std in state.window) else None

    def after_validation(self, metrics: Mapping[str, float]) -> str | None:
        """Success rates of a validation during training; one that stays low is enough."""
        for tag, success in by_tag(metrics, VALIDATION, SUCCESS).items():
            name, is_low = join(VALIDATION, tag, SUCCESS), success < self.config.min_val_success
            self.state.low_success[name] = self.state.low_success.get(name, 0) + 1 if is_low else 0
        patience = self.config.low_success_patience
        is_over = any(0 < patience <= count for count in self.state.low_success.values())
        return "low_validation_success" if is_over else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self.state)

    def load(self, record: Mapping[str, Any]) -> None:
        self.state = EarlyStopState(**record)
