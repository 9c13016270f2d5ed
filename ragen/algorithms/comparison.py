"""Is one way of training better than another? Differences by pairs, corrected for their number, and the seeds missing.

No torch here: reports, commands and the live page compare runs without it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from ragen.algorithms.statistics import Estimate, student_interval, t_expansion, t_quantile, unknown_interval, wilson

ALPHA = 0.05
"""A difference is told from none where its corrected p is below this."""
POWER_Z = 0.841621
"""80 % quantile of the normal distribution: the chance that so many seeds find a difference of the size asked for."""
MOST_SEEDS = 10_000
"""Beyond so many seeds nobody counts."""
TINY = 1e-12
"""Rounding: differences that vary less are equal."""
NUM_PANELS = 400
"""Of Simpson's rule: the tail of Student's t to ten digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """One arm minus another."""

    estimate: Estimate
    """The mean difference with Student's interval over the seeds; no interval from one seed."""
    p: float
    """Of a difference at least as far from zero if there is none, two-sided; NaN from one seed, or from equal ones."""
    std: float
    """Deviation of the difference between pairs of seeds; NaN from one seed."""
    num_seeds: int
    """Pairs of seeds; of arms without seeds in common the runs of the smaller arm."""
    is_paired: bool = True


def paired_gap(differences: Sequence[float]) -> Gap:
    """From the differences of the pairs.

    [0.1, 0.2, 0.3]: mean 0.2, standard error 0.1 / sqrt(3) -> t = 3.46 with 2 degrees of freedom, p = 0.074
    """
    if len(differences) < 2:
        return Gap(estimate=unknown_interval(differences[0]), p=math.nan, std=math.nan, num_seeds=1)
    std = stdev(differences)
    p = _p_value(fmean(differences), std / math.sqrt(len(differences)), len(differences) - 1)
    estimate = unknown_interval(fmean(differences)) if math.isnan(p) else student_interval(differences)
    return Gap(estimate=estimate, p=p, std=std, num_seeds=len(differences))


def unpaired_gap(one: Sequence[float], other: Sequence[float]) -> Gap:
    """Of two arms without seeds in common, by Welch's approximation.

    [0.4, 0.6], [0.1, 0.3]: errors 0.1 and 0.1, so 0.3 with an error of 0.141 and 2 degrees of freedom
    """
    mean, count = fmean(one) - fmean(other), min(len(one), len(other))
    if count < 2:
        return Gap(estimate=unknown_interval(mean), p=math.nan, std=math.nan, num_seeds=count, is_paired=False)
    parts = [stdev(values) ** 2 / len(values) for values in (one, other)]
    error = math.sqrt(sum(parts))
    weights = [part**2 / (len(values) - 1) for part, values in zip(parts, (one, other), strict=True)]
    degrees = sum(parts) ** 2 / sum(weights) if error > TINY else count - 1
    half, p = t_quantile(max(1, math.floor(degrees))) * error, _p_value(mean, error, degrees)
    return Gap(
        estimate=unknown_interval(mean) if math.isnan(p) else Estimate(mean, mean - half, mean + half),
        p=p,
        std=math.hypot(stdev(one), stdev(other)),
        num_seeds=count,
        is_paired=False,
    )


def _p_value(mean: float, error: float, degrees: float) -> float:
    if error < TINY:  # seeds that agree to the last level are a coincidence, not certainty
        return math.nan
    return two_sided_p(mean / error, degrees)


def two_sided_p(t: float, degrees: float) -> float:
    """The chance that Student's t lies at least so far from zero.

    With t = sqrt(n) tan(a), the density becomes cos(a)^(n - 1) / B(1/2, n/2), which Simpson's rule integrates.
    t = 2.776, 4 degrees -> 0.05
    """
    beta = math.exp(math.lgamma(0.5) + math.lgamma(degrees / 2) - math.lgamma(degrees / 2 + 0.5))
    angles = np.linspace(math.atan(abs(t) / math.sqrt(degrees)), math.pi / 2, NUM_PANELS + 1)
    heights = np.clip(np.cos(angles), 0, None) ** (degrees - 1)
    weights = np.array([1, *([4, 2] * (NUM_PANELS // 2))[:-1], 1])
    step = (angles[-1] - angles[0]) / NUM_PANELS
    return min(1.0, float(2 * step / 3 * (weights @ heights) / beta))


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for their number (Holm 1979): one that is below 0.05 is so however many were looked at. NaN stays NaN.

    [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[index] = highest
    return corrected


def seeds_needed(std: float, difference: float) -> int:
    """How many seeds find a difference of this size with a chance of 80 %, two-sided at 5 %.

    The least n with ((t_0.975 + t_0.8) std / difference)^2 <= n, both quantiles with n - 1 degrees of freedom.
    std 0.1, difference 0.1 -> 10
    """
    for count in range(2, MOST_SEEDS):
        quantiles = t_quantile(count - 1) + t_expansion(POWER_Z, count - 1)
        if (quantiles * std / difference) ** 2 <= count:
            return count
    return MOST_SEEDS


def area(steps: Sequence[int], values: Sequence[float]) -> float:
    """Mean height of a curve over its steps: the area under it by trapezoids, over its width.

    steps [0, 10, 20], values [0, 1, 1] -> 0.75
    """
    if len(steps) == 1:
        return values[0]
    widths = [after - before for before, after in itertools.pairwise(steps)]
    heights = [(before + after) / 2 for before, after in itertools.pairwise(values)]
    return sum(width * height for width, height in zip(widths, heights, strict=True)) / sum(widths)


# --- over several tasks


def iqm(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of [..., tasks, seeds], weights cut where a quarter ends within a value.

    Agarwal et al. 2021. [0, 1, 2, 9] -> 1.5
    """
    values = np.sort(scores.reshape(*scores.shape[:-2], -1))
    count = values.shape[-1]
    ends = np.arange(count + 1) / count
    weights = np.clip(np.minimum(ends[1:], 0.75) - np.maximum(ends[:-1], 0.25), 0, None) * 2
    return np.sum(values * weights, axis=-1)


def iqm_interval(scores: np.ndarray, *, num_draws: int = 2000, seed: int = 0) -> Estimate:
    """The interquartile mean of [tasks, seeds], with the percentile interval of a bootstrap within each task."""
    drawn = _redraw(scores[None], num_draws, np.random.default_rng(seed))[0]
    low, high = np.quantile(iqm(drawn), (0.025, 0.975))
    return Estimate(float(iqm(scores)), float(low), float(high))


def _redraw(scores: np.ndarray, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """[studies, tasks, seeds] -> [studies, draws, tasks, seeds]: seeds with replacement, every task by itself."""
    num, num_tasks, num_seeds = scores.shape
    chosen = rng.integers(num_seeds, size=(num, num_draws, num_tasks, num_seeds))
    return np.take_along_axis(scores[:, None], chosen, axis=-1)


# --- how well the intervals that are no Student's cover, beside which they are printed


def wilson_coverage(num_trials: int) -> float:
    """Share of Wilson's intervals of so many runs that hold the truth, over all true shares alike: exact sums.

    3 -> about 0.95
    """
    shares = (np.arange(1000) + 0.5) / 1000
    covered = np.zeros_like(shares)
    for successes in range(num_trials + 1):
        interval = wilson(successes / num_trials, num_trials)
        chance = math.comb(num_trials, successes) * shares**successes * (1 - shares) ** (num_trials - successes)
        covered += chance * ((interval.low <= shares) & (shares <= interval.high))
    return float(covered.mean())


def iqm_coverage(num_tasks: int, num_seeds: int, *, num_repeats: int = 400, num_draws: int = 200) -> float:
    """The same of the bootstrap of the IQM, simulated with normal scores, where the truth is zero."""
    rng = np.random.default_rng(0)
    drawn = _redraw(rng.normal(size=(num_repeats, num_tasks, num_seeds)), num_draws, rng)
    low, high = np.quantile(iqm(drawn), (0.025, 0.975), axis=-1)
    return float(np.mean((low <= 0) & (high >= 0)))
