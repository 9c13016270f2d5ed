"""What training pays for: whether valid replies earn more than invalid ones, and where the advantages lie.

All of it follows from what a rollout recorded; no pass of a model is made. What a rollout says nothing about is left
out of the metrics: a difference without both sides is neither zero nor NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from ragen.tracking.names import SOLVED_LOGPROB, VALID_MINUS_INVALID, turn_entropy
from ragen.types import Episode, Group, Metrics, Sample


def incentive_metrics(groups: Sequence[Group], *, use_turn_scores: bool) -> Metrics:
    """What the complete groups of a rollout say, before they are filtered."""
    episodes = [episode for group in groups for episode in group.episodes]
    found = {
        VALID_MINUS_INVALID: valid_minus_invalid(groups, use_turn_scores=use_turn_scores),
        SOLVED_LOGPROB: solved_logprob(episodes),
    }
    return entropy_by_turn(episodes) | {name: value for name, value in found.items() if value is not None}


def valid_minus_invalid(groups: Iterable[Group], *, use_turn_scores: bool) -> float | None:
    """Mean reward of valid replies less that of invalid ones within a group, averaged over the groups that hold both.

    The reward of a reply is the score of its episode, or with `use_turn_scores` the reward and penalty of its turn.
    Episodes of two replies: (valid, valid) with score 1, (valid, invalid) with score -2
    -> (1 + 1 - 2) / 3 - (-2) = 2
    """
    differences = []
    for group in groups:
        rewards: dict[bool, list[float]] = {False: [], True: []}
        for episode in group.episodes:
            score = episode.score
            for turn in episode.turns:
                rewards[turn.is_invalid].append(turn.reward + turn.penalty if use_turn_scores else score)
        if rewards[False] and rewards[True]:
            differences.append(fmean(rewards[False]) - fmean(rewards[True]))
    return fmean(differences) if differences else None


def solved_logprob(episodes: Iterable[Episode]) -> float | None:
    """Mean log-prob of a token in the replies of solved episodes, as it was sampled; None without any."""
    logprobs = [value for e in episodes if e.is_success for turn in e.turns for value in turn.logprobs]
    return fmean(logprobs) if logprobs else None


def entropy_by_turn(episodes: Iterable[Episode]) -> Metrics:
    """`entropy/turn_1`, ...: mean entropy behind the tokens of each turn, where the engine told all of them."""
    found: dict[int, list[float]] = {}
    for episode in episodes:
        for number, turn in enumerate(episode.turns, start=1):
            if turn.has_entropies:
                found.setdefault(number, []).extend(turn.entropies)
    return {turn_entropy(number): fmean(found[number]) for number in sorted(found) if found[number]}


def invalid_advantages(advantages: Tensor, mask: Tensor, samples: Sequence[Sample]) -> Metrics:
    """Share of the absolute advantage on tokens of invalid replies, and their mean advantage.

    advantages [1, -2, -1] on three sampled tokens, the last two of an invalid reply -> mass .75, mean -1.5
    """
    is_invalid = torch.zeros_like(mask)  # [batch, seq]
    for row, sample in enumerate(samples):
        for (start, end), is_reply_invalid in zip(sample.turn_spans, sample.turn_is_invalid, strict=True):
            if is_reply_invalid:
                is_invalid[row, start:end] = 1.0
    is_invalid *= mask
    total, num_tokens = (advantages.abs() * mask).sum().item(), is_invalid.sum().item()
    metrics: Metrics = {}
    if total:
        metrics["incentive/invalid_advantage_mass"] = (advantages.abs() * is_invalid).sum().item() / total
    if num_tokens:
        metrics["incentive/invalid_advantage_mean"] = (advantages * is_invalid).sum().item() / num_tokens
    return metrics
