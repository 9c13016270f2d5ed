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
from ragen.types import Group, group_episodes


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
    found = [_decide(group) for group in _groups(folder)]
    num_tokens, num_saved = sum(each.num_tokens for each in found), sum(each.num_saved for each in found)
    varied = [each.is_given_up for each in found if not each.is_flat]
    return EarlyDecision(
        flat=fmean(each.is_flat for each in found),
        saved=num_saved / num_tokens,
        lost=fmean(varied) if varied else 0.0,
    )


class _Group(NamedTuple):
    is_flat: bool
    is_given_up: bool
    num_tokens: int
    num_saved: int


def _decide(group: Group) -> _Group:
    scores = [episode.score for episode in group.episodes]
    lengths = [sum(len(turn.response_ids) for turn in episode.turns) for episode in group.episodes]
    half = len(scores) // 2
    is_given_up = deviation(scores[:half]) <= ZERO
    return _Group(deviation(scores) <= ZERO, is_given_up, sum(lengths), sum(lengths[half:]) if is_given_up else 0)


def _groups(folder: Path) -> list[Group]:
    episodes = [list(read_episodes(file)) for file in select_files(folder, None)]
    return [group for each in episodes for group in group_episodes(each) if group.is_complete]
