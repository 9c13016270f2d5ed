"""How groups are chosen by their group scores.

Every strategy is a function of the candidates' group scores and the settings; it returns indices, best first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import Any, Protocol

from ragen.config.actor_rollout_ref import FilterMetric, FilterType, RolloutConfig, TopPMode
from ragen.config.extensions import load, refuse
from ragen.config.strict import shorten

ZERO = 1e-10
"""A group score this small is zero: what rounding leaves of equal rewards."""

KEY = "actor_rollout_ref.rollout.rollout_filter_strategy"

ROUNDING = 1e-9
"""Slack where a sum of floats meets a bound: 0.29 * 100 is 28.999999999999996."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterSettings:
    """The keys `rollout_filter_*`; docs/algorithms.md explains their values."""

    strategy: str = "top_p"
    value: float = 1.0
    type: FilterType = "largest"
    metric: FilterMetric = "reward_variance"
    include_zero: bool = True
    top_p_prob_mode: TopPMode = "linear"
    selection_eps: float = 0.01

    @property
    def sign(self) -> float:
        """What group scores are multiplied with to make the wanted ones large."""
        return 1.0 if self.type == "largest" else -1.0

    @classmethod
    def from_config(cls, rollout: RolloutConfig) -> FilterSettings:
        return cls(**{field.name: getattr(rollout, f"rollout_filter_{field.name}") for field in fields(cls)})


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (N - 1); a single value does not vary: [1, 3] -> 1.414, [5] -> 0."""
    return stdev(values) if len(values) > 1 else 0.0


class Strategy(Protocol):
    def __call__(self, group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
        """Indices into the candidates' group scores, in the order of choice. `num_groups` counts all groups."""
        ...


def best_first(group_scores: Sequence[float], settings: FilterSettings) -> list[int]:
    """Indices from the most to the least wanted group score; equal ones keep their order.

    [0, 5, 2] -> [1, 2, 0] for largest, [0, 2, 1] for smallest
    """
    return sorted(range(len(group_scores)), key=lambda index: -settings.sign * group_scores[index])


def keep_top_p(group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
    """The best groups that together hold `value` of all group scores; from 1.0 on all candidates."""
    if settings.value >= 1:
        return list(range(len(group_scores)))
    return TOP_P_MODES[settings.top_p_prob_mode](group_scores, settings)


def top_p_linear(group_scores: Sequence[float], settings: FilterSettings) -> list[int]:
    """Best first until their sum reaches value * total - eps; nothing if it never does.

    Scores of 0 or less end the walk. A batch whose total is no more than eps / value is dropped altogether.

    group_scores [0, 1, 4], value .8, eps .01 -> target 3.99 -> [2]
    group_scores [.005, .003], value .9, eps .01 -> target below 0 -> []
    """
    target = settings.value * math.fsum(group_scores) - settings.selection_eps
    if target <= 0:
        return []
    taken, mass = [], 0.0
    for index in best_first(group_scores, settings):
        if mass >= target or group_scores[index] <= 0:
            break
        taken.append(index)
        mass += group_scores[index]
    return taken if mass >= target else []


def top_p_softmax(group_scores: Sequence[float], settings: FilterSettings) -> list[int]:
    """Best first until their softmax probability reaches `value`; always at least one.

    group_scores [0, 1, 4] -> probabilities [.017, .047, .936]; value .95 -> [2, 1]

    Depends on the reward scale: ten times the rewards, and one group holds all the mass.
    """
    sign = settings.sign
    highest = max(sign * score for score in group_scores)
    weights = [math.exp(sign * score - highest) for score in group_scores]
    total, taken, mass = math.fsum(weights), [], 0.0
    for index in best_first(group_scores, settings):
        taken.append(index)
        mass += weights[index] / total
        if mass >= settings.value - ROUNDING:
            break
    return taken


def top_p_softmax_z(group_scores: Sequence[float], settings: FilterSettings) -> list[int]:
    """`top_p_softmax` of the z-scores: the same groups whatever unit rewards are counted in.

    group_scores [0, 1, 4] and [0, 100, 400] -> z [-.80, -.32, 1.12]; value .7 -> [2, 1] for both
    """
    return top_p_softmax(z_scores(group_scores), settings)


TOP_P_MODES: dict[str, Callable[[Sequence[float], FilterSettings], list[int]]] = {
    "linear": top_p_linear,
    "softmax": top_p_softmax,
    "softmax_z": top_p_softmax_z,
}


def keep_top_k(group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
    """The best `value` of all groups, at least one: value .25 of 8 groups -> 2."""
    return _best(group_scores, settings, int(settings.value * num_groups + ROUNDING))


def keep_top_k_abs(group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
    """The best `value` groups, at least one."""
    return _best(group_scores, settings, int(settings.value))


def keep_min_p(group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
    """Groups that reach the share `value` of the best group score; for smallest, at most the smallest over `value`.

    group_scores [1, 3, 4], value .5 -> at least 2 -> [2, 1]; smallest -> at most 2 -> [0]
    """
    if settings.type == "largest":
        bound = settings.value * max(group_scores) - ZERO
        return [index for index in best_first(group_scores, settings) if group_scores[index] >= bound]
    bound = min(group_scores) / (settings.value + ZERO) + ZERO
    return [index for index in best_first(group_scores, settings) if group_scores[index] <= bound]


def keep_z_score(group_scores: Sequence[float], settings: FilterSettings, *, num_groups: int) -> list[int]:
    """Groups at least `value` standard deviations above the mean of the candidates; below it for smallest.

    group_scores [0, 1, 4] -> z [-.80, -.32, 1.12]; value 0 -> [2], value -.5 -> [2, 1]

    Free of the reward scale, and the number kept follows the shape of the batch: a few outstanding groups pass a
    high bar, a batch of equals passes whole at values up to 0.
    """
    sign = settings.sign
    z = z_scores(group_scores)
    return [index for index in best_first(group_scores, settings) if sign * z[index] >= settings.value - ROUNDING]


STRATEGIES: dict[str, Strategy] = {
    "top_p": keep_top_p,
    "top_k": keep_top_k,
    "top_k_abs": keep_top_k_abs,
    "min_p": keep_min_p,
    "z_score": keep_z_score,
}


def z_scores(group_scores: Sequence[float]) -> list[float]:
    """(s - mean) / std; all 0 when the group scores differ by no more than rounding: [0, 2] -> [-.707, .707]."""
    mean, spread = fmean(group_scores), deviation(group_scores)
    return [(score - mean) / spread if spread > ZERO else 0.0 for score in group_scores]


def _best(group_scores: Sequence[float], settings: FilterSettings, count: int) -> list[int]:
    return best_first(group_scores, settings)[: max(count, 1)]


def strategy(name: str) -> Strategy:
    """The strategy of that name: built in, or one's own."""
    return STRATEGIES[name] if name in STRATEGIES else load("filters", name, KEY)


def checked_indices(chosen: Any, num_candidates: int, name: str) -> list[int]:
    """What a strategy of one's own returned: indices of candidates, each once."""
    try:
        indices = [operator.index(index) for index in chosen]
    except TypeError as error:
        raise refuse("filters", name, KEY, f"it returned {shorten(repr(chosen))}.") from error
    if len(set(indices)) < len(indices) or not all(0 <= index < num_candidates for index in indices):
        shown = shorten(repr(indices))
        raise refuse(
            "filters", name, KEY, f"of {num_candidates} groups it chose {shown}, not each of them at most once."
        )
    return indices


def select(group_scores: Sequence[float], settings: FilterSettings) -> list[int]:
    """Indices of the kept groups in the order of choice.

    group_scores [0, .5, 1, 2], top_k .5 -> [3, 2]
    """
    candidates = [i for i, score in enumerate(group_scores) if settings.include_zero or abs(score) > ZERO]
    if not candidates:
        return []
    chosen = strategy(settings.strategy)([group_scores[i] for i in candidates], settings, num_groups=len(group_scores))
    if settings.strategy not in STRATEGIES:
        chosen = checked_indices(chosen, len(candidates), settings.strategy)
    return [candidates[index] for index in chosen]
