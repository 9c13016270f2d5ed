"""Means with 95 % confidence intervals, for whatever this project quotes. Their coverage is tested by simulation.

What is independent decides: the levels of a validation, never the episodes of one level; the seeds of a sweep, but not
the validation levels that they share.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

Z = 1.959964
"""97.5 % quantile of the normal distribution."""

T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""97.5 % quantiles of Student's t with 1, 2, ..., 20 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and the ends of its 95 % interval; NaN where there is nothing to tell them from."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        """0.430 [0.371, 0.491]; without the interval where it is not known."""
        spec = spec or ".3f"
        interval = "" if math.isnan(self.low) else f" [{self.low:{spec}}, {self.high:{spec}}]"
        return f"{self.mean:{spec}}{interval}"

    @property
    def below(self) -> float:
        """From the mean to the lower end; 0 where that is not known."""
        return 0.0 if math.isnan(self.low) else self.mean - self.low

    @property
    def above(self) -> float:
        """From the mean to the upper end; 0 where that is not known."""
        return 0.0 if math.isnan(self.high) else self.high - self.mean

    def as_share(self) -> Estimate:
        """Cut to what a share can be."""
        if math.isnan(self.low):
            return self
        return Estimate(self.mean, max(0.0, self.low), min(1.0, self.high))


def unknown_interval(mean: float) -> Estimate:
    """A mean of which nothing else is known."""
    return Estimate(mean, math.nan, math.nan)


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t, from the table and beyond it by the expansion.

    1 -> 12.706, 30 -> 2.042
    """
    return T_QUANTILES[degrees - 1] if degrees <= len(T_QUANTILES) else t_expansion(Z, degrees)


def t_expansion(z: float, degrees: int) -> float:
    """The quantile of Student's t that belongs to a quantile of the normal distribution (Abramowitz and Stegun 26.7.5).

    To four digits from 20 degrees of freedom on; for the 80 % quantile 1.35 instead of 1.38 with one of them.
    """
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


# --- one validation


def cluster_variance(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Variance of the mean of values that come in clusters, such as the episodes of one level (Liang and Zeger 1986).

    values [0, 1, 1, 1], clusters [a, a, b, b]: mean 0.75, deviations summed by cluster -0.5 and 0.5
    -> 2 / 1 * (0.25 + 0.25) / 4**2 = 0.0625
    """
    mean = fmean(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    count = len(sums)
    return count / (count - 1) * sum(total**2 for total in sums.values()) / len(values) ** 2


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """The mean of values that come in clusters, with Student's interval over the clusters.

    values [0, 1, 1, 1], clusters [a, a, b, b] -> 0.75 +- 12.706 * 0.25
    """
    mean, num_clusters = fmean(values), len(set(clusters))
    if num_clusters < 2:
        return unknown_interval(mean)
    half = t_quantile(num_clusters - 1) * math.sqrt(cluster_variance(values, clusters))
    return Estimate(mean, mean - half, mean + half)


def wilson(share: float, num_trials: float, quantile: float = Z) -> Estimate:
    """Wilson's score interval of a share, which stays inside [0, 1]; `num_trials` need not be whole."""
    z2 = quantile**2
    centre = (share + z2 / (2 * num_trials)) / (1 + z2 / num_trials)
    spread = math.sqrt(share * (1 - share) / num_trials + z2 / (4 * num_trials**2))
    half = quantile * spread / (1 + z2 / num_trials)
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def proportion_interval(num_successes: int, num_trials: int) -> Estimate:
    """A share of independent trials.

    8 of 10 -> 0.8 [0.490, 0.943]
    """
    return wilson(num_successes / num_trials, num_trials) if num_trials else unknown_interval(math.nan)


def success_interval(is_success: Sequence[bool], clusters: Sequence[Hashable]) -> Estimate:
    """Success rate: Wilson's interval, for several episodes per level with as many trials as they are worth.

    So many independent trials would have the variance that the levels show (Korn and Graubard 1998); it lies between
    the levels and the episodes.
    """
    num_levels, num_episodes = len(set(clusters)), len(clusters)
    if not num_episodes:
        return unknown_interval(math.nan)
    if num_levels == num_episodes:
        return proportion_interval(sum(is_success), num_episodes)
    share = fmean(is_success)
    if share in (0, 1) or num_levels == 1:  # levels that do not differ say nothing of their spread
        return wilson(share, num_levels)
    variance = cluster_variance(list(map(float, is_success)), clusters)
    worth = share * (1 - share) / variance if variance else math.inf
    return wilson(share, min(max(worth, num_levels), num_episodes), t_quantile(num_levels - 1))


# --- several of them


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates; deviations add up as squares (Zou and Donner 2008).

    [0.4 +- 0.3, 0.6 +- 0.4] -> 0.5 +- 0.25
    """
    count = len(estimates)
    mean = fmean(estimate.mean for estimate in estimates)
    if any(math.isnan(estimate.low) for estimate in estimates):
        return unknown_interval(mean)
    below = math.hypot(*(estimate.below for estimate in estimates)) / count
    above = math.hypot(*(estimate.above for estimate in estimates)) / count
    return Estimate(mean, mean - below, mean + above)


def student_interval(values: Sequence[float]) -> Estimate:
    """The mean of a few independent values with Student's interval.

    [0.5, 0.5, 0.6] -> 0.533 [0.390, 0.677]
    """
    return mean_interval(values, range(len(values)))


def over_seeds(runs: Sequence[Estimate], *, share_levels: bool) -> Estimate:
    """The mean over runs with several seeds, each with the interval of its own validation.

    Student's interval covers what differs between the runs. Validated on the same levels, they have an error in common
    that it cannot see, so the interval of a validation is added to it, as squares. Validated on levels of their own,
    that error is among the differences, and the interval of the mean of the validations is only the least that is
    quoted: equal runs have not been measured without error. One run has the interval of its validation.
    """
    if len(runs) == 1:
        return runs[0]
    between = student_interval([run.mean for run in runs])
    if share_levels:
        below, above = (math.hypot(between.above, fmean(ends)) for ends in _ends(runs))
    else:
        below, above = (max(between.above, math.hypot(*ends) / len(runs)) for ends in _ends(runs))
    return Estimate(between.mean, between.mean - below, between.mean + above)


def _ends(runs: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    return [run.below for run in runs], [run.above for run in runs]


def best_of(scores: Sequence[float], k: int) -> tuple[float, float]:
    """Mean and standard deviation of the best of k draws with replacement: what endless resampling would give.

    [0, 1], k=2: the best is 1 with probability 3/4 -> (0.75, 0.433)
    """
    count = len(scores)
    ranked = [(score, (rank / count) ** k - ((rank - 1) / count) ** k) for rank, score in enumerate(sorted(scores), 1)]
    mean = sum(score * weight for score, weight in ranked)
    return mean, math.sqrt(sum(weight * (score - mean) ** 2 for score, weight in ranked))


def worst_of(scores: Sequence[float], k: int) -> tuple[float, float]:
    """The same of the worst of k draws."""
    mean, std = best_of([-score for score in scores], k)
    return -mean, std
