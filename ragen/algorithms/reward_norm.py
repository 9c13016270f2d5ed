"""Rescaling of episode scores inside a grouping, before advantages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from statistics import fmean

from ragen.algorithms.filter_strategies import deviation
from ragen.types import Episode

EPS = 1e-6


def _mean_std(scores: list[float]) -> list[float]:
    spread = deviation(scores)
    if spread <= EPS:
        return [0.0] * len(scores)
    mean = fmean(scores)
    return [(score - mean) / (spread + EPS) for score in scores]


METHODS: dict[str, Callable[[list[float]], list[float]]] = {
    "identity": lambda scores: scores,
    "mean": lambda scores: [score - fmean(scores) for score in scores],
    "mean_std": _mean_std,
    "asym_clip": lambda scores: [min(max(score, -1.0), 3.0) for score in _mean_std(scores)],
}

GROUPINGS: dict[str, Callable[[Episode], Hashable]] = {
    "state": lambda episode: episode.group_id,
    "inductive": lambda episode: episode.tag,
    "batch": lambda episode: None,
}


def normalize_scores(episodes: Sequence[Episode], *, grouping: str, method: str) -> list[float]:
    """The score of each episode (reward and penalty), rescaled among the episodes it is grouped with.

    scores [0, 2], one group, method mean_std -> [-0.707, 0.707]

    Nothing is done when every grouping has a single member. The rollout filter reads the raw `Episode.score`:
    after mean_std every group would have the same variance.
    """
    scores = [episode.score for episode in episodes]
    members: dict[Hashable, list[int]] = {}
    for index, episode in enumerate(episodes):
        members.setdefault(GROUPINGS[grouping](episode), []).append(index)
    if all(len(indices) == 1 for indices in members.values()):
        return scores
    normalized = [0.0] * len(scores)
    for indices in members.values():
        for index, value in zip(indices, METHODS[method]([scores[i] for i in indices]), strict=True):
            normalized[index] = value
    return normalized
