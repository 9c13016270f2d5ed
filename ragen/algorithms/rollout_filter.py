"""The rollout filter: which groups of episodes are worth an update.

A group whose episodes all earned the same has no advantage to learn from, only noise. The filter gives every group a
group score (`METRICS`), chooses by it (filter_strategies.py) and keeps or drops whole groups. It needs plain episodes
only, no torch: `ragen replay-filter` applies it to the saved episodes of any run.

Rewards are the raw `Episode.score`: after normalisation all groups would vary equally.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from ragen.algorithms.filter_strategies import ZERO, FilterSettings, deviation, select
from ragen.errors import RagenError
from ragen.types import Episode, Group, Metrics


@dataclass(frozen=True, slots=True)
class Metric:
    """How a group score is made: a number per episode, summed up over the group."""

    quantity: str
    """`reward`, `entropy`, `length` or `success`; also the family of names under which statistics are logged."""
    summarize: Callable[[Sequence[float]], float]


METRICS: dict[str, Metric] = {
    "reward_variance": Metric("reward", deviation),
    "reward": Metric("reward", fmean),
    "reward_sum": Metric("reward", sum),
    "entropy": Metric("entropy", fmean),
    "entropy_variance": Metric("entropy", deviation),
    "length": Metric("length", fmean),
    "success_variance": Metric("success", deviation),
}
"""Name -> group score. The variances are standard deviations.

`success_variance` looks at the outcome instead of the reward. Step costs and format penalties make groups vary in
which every episode failed; learning from those teaches to fail cheaply. It depends on no reward scale at all.
"""


def mean_entropy(episode: Episode) -> float:
    """Mean over the sampled tokens of the entropy of the distribution each was drawn from."""
    if not all(turn.has_entropies for turn in episode.turns):
        raise RagenError(
            "These episodes do not hold the entropies behind their tokens (they are of an earlier version, or of an "
            "engine that speaks text), so no filter can use rollout_filter_metric=entropy or entropy_variance here."
        )
    entropies = [entropy for turn in episode.turns for entropy in turn.entropies]
    return fmean(entropies) if entropies else 0.0


QUANTITIES: dict[str, Callable[[Episode], float]] = {
    "reward": lambda episode: episode.score,
    "entropy": mean_entropy,
    "length": lambda episode: float(sum(len(turn.response_ids) for turn in episode.turns)),
    "success": lambda episode: float(episode.is_success),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterResult:
    """What was kept, and why."""

    kept: list[Group]
    """The kept groups in their original order."""
    kept_ids: list[int]
    """Their group ids in the same order."""
    selected_ids: list[int]
    """The same ids in the order of choice, best first."""
    group_ids: list[int]
    """[groups] All groups."""
    group_scores: list[float]
    """[groups] The number by which the metric judges each."""
    rewards: list[list[float]]
    """[groups][episodes] The raw `Episode.score`."""
    reward_stds: list[float]
    """[groups] Sample standard deviation of those rewards, 0 for a single episode."""
    kept_ratio: float
    """Kept groups / all groups."""
    metrics: Metrics


class RolloutFilter:
    """Keeps the groups that the settings ask for."""

    def __init__(self, settings: FilterSettings) -> None:
        self.settings = settings

    def __call__(self, groups: Sequence[Group]) -> FilterResult:
        """Compute group scores, choose and measure."""
        metric = METRICS[self.settings.metric]
        rewards = [[QUANTITIES["reward"](episode) for episode in group.episodes] for group in groups]
        values = [[QUANTITIES[metric.quantity](episode) for episode in group.episodes] for group in groups]
        group_scores = [float(metric.summarize(row)) for row in values]
        selected = select(group_scores, self.settings)
        kept = sorted(selected)
        # The statistics of the rewards are wanted whatever the filter looks at: early stopping reads them.
        metrics: Metrics = {}
        for family, rows in {"": values, "reward_": rewards, f"{metric.quantity}_": values}.items():
            metrics |= _statistics(rows, kept, family)
        kept_ratio = len(kept) / len(groups) if groups else 0.0
        metrics |= {
            "filter_kept_count": float(len(kept)),
            "filter_dropped_count": float(len(groups) - len(kept)),
            "filter_kept_ratio": kept_ratio,
            "filter_zero_count": float(sum(abs(score) <= ZERO for score in group_scores)),
        }
        return FilterResult(
            kept=[groups[index] for index in kept],
            kept_ids=[groups[index].group_id for index in kept],
            selected_ids=[groups[index].group_id for index in selected],
            group_ids=[group.group_id for group in groups],
            group_scores=group_scores,
            rewards=rewards,
            reward_stds=[deviation(row) for row in rewards],
            kept_ratio=kept_ratio,
            metrics=metrics,
        )


def _statistics(values: Sequence[Sequence[float]], kept: Sequence[int], family: str) -> Metrics:
    """`in_group_<family>std` and kin, means over all groups; `chosen_in_group_*` over the kept ones."""
    summaries: dict[str, Callable[[Sequence[float]], float]] = {"std": deviation, "max": max, "mean": fmean}
    if family:
        summaries["sum"] = sum
    metrics: Metrics = {}
    for name, summarize in summaries.items():
        per_group = [float(summarize(row)) for row in values]
        chosen = [per_group[index] for index in kept]
        metrics[f"in_group_{family}{name}"] = fmean(per_group) if per_group else 0.0
        metrics[f"chosen_in_group_{family}{name}"] = fmean(chosen) if chosen else 0.0
    return metrics


FIXED_EDGES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
EDGE_SLACK = 1e-6


def quantile_buckets(stds: Mapping[int, float], num_buckets: int) -> dict[str, list[int]]:
    """Groups from the lowest to the highest deviation, cut into buckets whose sizes differ by at most one.

    {7: 0.1, 8: 3.0, 9: 0.2}, 2 buckets -> {"bucket_1": [7, 9], "bucket_2": [8]}
    """
    order = sorted(stds, key=lambda group: (stds[group], group))
    parts = np.array_split(order, min(num_buckets, len(order))) if order else []
    return {f"bucket_{number}": part.tolist() for number, part in enumerate(parts, start=1)}


def fixed_rv_buckets(stds: Mapping[int, float], num_buckets: int) -> dict[str, list[int]]:
    """Groups by deviation: [0, 1) is bucket_1, ..., [5, inf) bucket_6, whatever `num_buckets` is; no empty buckets.

    {7: 0.1, 8: 5.0, 9: 0.2} -> {"bucket_1": [7, 9], "bucket_6": [8]}
    """
    return _numbered(stds, lambda std: bisect_right(FIXED_EDGES, std))


def range_buckets(means: Mapping[int, float], num_buckets: int) -> dict[str, list[int]]:
    """Groups by mean reward, in ranges of equal width from the lowest to the highest; no empty buckets.

    With rewards of 0 and 1, groups of 8 and 9 buckets, bucket_1 holds the groups that solved none and bucket_9 all.
    {7: 0.0, 8: 0.5, 9: 1.0}, 9 buckets -> {"bucket_1": [7], "bucket_5": [8], "bucket_9": [9]}
    """
    low, high = min(means.values(), default=0.0), max(means.values(), default=0.0)
    width = (high - low) / num_buckets or 1.0
    # The slack keeps a mean that lies on an edge on one side of it, however it was rounded.
    return _numbered(means, lambda mean: min(num_buckets, 1 + int((mean - low) / width + EDGE_SLACK)))


def _numbered(values: Mapping[int, float], number_of: Callable[[float], int]) -> dict[str, list[int]]:
    """The groups of each bucket that has some, by the number of the bucket that a group's value belongs to."""
    numbers = {group: number_of(values[group]) for group in sorted(values)}
    return {f"bucket_{n}": [group for group in numbers if numbers[group] == n] for n in sorted({*numbers.values()})}


class BucketMode(NamedTuple):
    """How groups are put into buckets."""

    by: Literal["std", "mean"]
    """The number of a group that decides: deviation or mean of its rewards."""
    cut: Callable[[Mapping[int, float], int], dict[str, list[int]]]
    """That number of each group, and how many buckets are asked for -> groups of each bucket."""


BUCKET_MODES = {
    "quantile": BucketMode("std", quantile_buckets),
    "fixed_rv": BucketMode("std", fixed_rv_buckets),
    "reward_mean": BucketMode("mean", range_buckets),
}
"""Mode of gradient_analysis_bucket_mode -> the buckets."""
