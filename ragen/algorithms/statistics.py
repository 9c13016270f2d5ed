"""Means with 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

Z = 1.959964
"""97.5 % quantile of the normal distribution."""

T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""97.5 % quantiles of Student's t with 1, 2, ..., 20 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def mean_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """The mean of values that come in clusters (the episodes of one level are not independent).

    values [0, 1, 1, 1], clusters [a, a, b, b] -> mean 0.75, interval from the cluster means 0.5 and 1
    """
    by_cluster: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        by_cluster.setdefault(cluster, []).append(value)
    means = [fmean(members) for members in by_cluster.values()]
    mean = fmean(values)
    if len(means) < 2:
        return Estimate(mean, math.nan, math.nan)
    half = Z * stdev(means) / math.sqrt(len(means))
    return Estimate(mean, mean - half, mean + half)


def proportion_interval(num_successes: int, num_trials: int) -> Estimate:
    """A share of independent trials with Wilson's score interval, which stays inside [0, 1].

    8 of 10 -> 0.8 [0.490, 0.943]
    """
    if num_trials == 0:
        return Estimate(math.nan, math.nan, math.nan)
    share, z2 = num_successes / num_trials, Z * Z
    centre = (share + z2 / (2 * num_trials)) / (1 + z2 / num_trials)
    spread = math.sqrt(share * (1 - share) / num_trials + z2 / (4 * num_trials**2))
    half = Z * spread / (1 + z2 / num_trials)
    return Estimate(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def success_interval(is_success: Sequence[bool], clusters: Sequence[Hashable]) -> Estimate:
    """Success rate: Wilson's interval for one episode per level, else the interval over levels."""
    num_levels = len(set(clusters))
    if num_levels == len(clusters):
        return proportion_interval(sum(is_success), len(is_success))
    if len(set(is_success)) == 1:  # levels that do not differ say nothing of their spread; each counts as one trial
        return proportion_interval(num_levels * is_success[0], num_levels)
    interval = mean_interval([float(flag) for flag in is_success], clusters)
    return Estimate(interval.mean, max(0.0, interval.low), min(1.0, interval.high))


def student_interval(values: Sequence[float]) -> Estimate:
    """The mean of a few independent values, such as runs with several seeds, with Student's interval.

    [0.5, 0.5, 0.6] -> 0.533 [0.390, 0.677]
    """
    mean, degrees = fmean(values), len(values) - 1
    if degrees < 1:
        return Estimate(mean, math.nan, math.nan)
    # Beyond the table the quantile is at most 2.086, which widens the interval by less than 7 %.
    half = T_QUANTILES[min(degrees, len(T_QUANTILES)) - 1] * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)
