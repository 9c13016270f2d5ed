"""Saved training episodes, played through filters and rules once more.

Tested in tests/reproduce/test_claims.py.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ragen.algorithms.filter_strategies import ZERO, FilterSettings, deviation
from ragen.evaluation.replay_filter import replay, select_files
from ragen.tracking.episodes import read_episodes
from ragen.types import group_episodes


def kept_share(folder: Path, settings: FilterSettings, *, reward_scale: float) -> float:
    """Mean share of the groups of a step that a filter keeps, with rewards times `reward_scale`."""
    files = select_files(folder, None)
    return fmean(replay(file, {"": settings}, reward_scale=reward_scale)[0].result.kept_ratio for file in files)


class EarlyDecision(NamedTuple):
    """What giving up a group whose first half earned all the same would have done."""

    flat: float
    """Share of the groups without variance."""
    saved: float
    """Share of the sampled tokens that would not have been sampled."""
    lost: float
    """Share of the groups with variance that would have been given up."""


def decide_early(folder: Path) -> EarlyDecision:
    """Over the saved training episodes of a run, complete groups alone."""
    groups = [group for file in select_files(folder, None) for group in group_episodes(read_episodes(file))]
    are_flat: list[bool] = []
    varied_given_up: list[bool] = []
    num_tokens = num_saved = 0
    for group in filter(lambda group: group.is_complete, groups):
        scores = [episode.score for episode in group.episodes]
        lengths = [sum(len(turn.response_ids) for turn in episode.turns) for episode in group.episodes]
        half = len(scores) // 2
        is_given_up = deviation(scores[:half]) <= ZERO
        num_tokens += sum(lengths)
        num_saved += sum(lengths[half:]) if is_given_up else 0
        are_flat.append(deviation(scores) <= ZERO)
        if not are_flat[-1]:
            varied_given_up.append(is_given_up)
    lost = fmean(varied_given_up) if varied_given_up else 0.0
    return EarlyDecision(flat=fmean(are_flat), saved=num_saved / num_tokens, lost=lost)
