"""Refilling a batch: groups that the filter dropped are replaced by new ones on other levels, es_manager.train.refill.

Group g of a rollout has index g. A further rollout plays the indices that no kept group comes from; its groups are
numbered on, so that index and attempt can be read from a group id: g = attempt * env_groups + index. The filter then
judges all groups of the step together, as it would those of one larger rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ragen.algorithms.rollout_filter import FilterResult
from ragen.config.schema import TrainSetConfig
from ragen.types import Metrics


def missing_groups(kept: FilterResult, num_groups: int) -> list[int]:
    """The indices that no kept group comes from: with 3 groups and 0 and 4 kept, 4 having index 1, it is [2]."""
    filled = {group_id % num_groups for group_id in kept.kept_ids}
    return [index for index in range(num_groups) if index not in filled]


class Refills:
    """The further rollouts of a step, within their bound, and what is logged of them."""

    def __init__(self, train: TrainSetConfig, *, announce: Callable[[str], None]) -> None:
        self.num_groups, self.limit, self.announce = train.env_groups, train.refill, announce
        self.num_attempts = 1
        """Rollouts of the step, the first included."""
        self.num_played = 0
        """Groups that were played to replace others."""
        self.missing: list[int] = []
        """Indices without a kept group."""
        self.was_ended = False
        """The bound has left a batch with groups missing, and it was said."""

    def of_step(self, kept: FilterResult) -> Iterator[tuple[int, list[int]]]:
        """Attempt and indices of each further rollout, given what the first one kept; `note` what each leaves."""
        self.num_attempts, self.num_played = 1, 0
        self.note(kept)
        while self.missing and self.num_attempts <= self.limit:
            self.num_attempts, self.num_played = self.num_attempts + 1, self.num_played + len(self.missing)
            yield self.num_attempts - 1, self.missing
        if self.limit and self.missing and not self.was_ended:
            self.was_ended = True
            self.announce(
                f"es_manager.train.refill={self.limit} ended with {len(self.missing)} of {self.num_groups} groups "
                "missing; the step is trained with the others. rollout/unfilled_groups counts them from now on: raise "
                "refill, choose easier or harder levels, or let the filter keep more."
            )

    def note(self, kept: FilterResult) -> None:
        """What the filter keeps of all groups so far."""
        self.missing = missing_groups(kept, self.num_groups)

    def metrics(self) -> Metrics:
        metrics = {"train/rollout_attempts": float(self.num_attempts)}
        if self.limit:
            metrics |= {
                "rollout/refilled_groups": float(self.num_played),
                "rollout/unfilled_groups": float(len(self.missing)),
            }
        return metrics
