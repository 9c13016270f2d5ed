"""Advantages without a critic: an episode is compared with the other episodes of its group.

A row of the batch is an episode, or one turn of it in the limited context modes. Rows of one episode share their
(group, episode) numbers and all carry the score of the whole episode, so every episode enters a mean or a deviation
once, however many turns it had. Rows differ by a KL in the rewards only: then a row keeps its own, and the episode
counts with their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.gae import gae
from ragen.algorithms.masked import masked_whiten

EPS = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStatistics:
    """What each row needs to know of its group; all [batch] in float64.

    In float32 the mean of equal scores is off by a rounding error, which a division by std + 1e-6 turns into an
    advantage.
    """

    scores: Tensor
    """Score of the row's episode, less the row's own KL."""
    episode_scores: Tensor
    """The same for the episode: the mean of its rows."""
    mean: Tensor
    std: Tensor
    """Sample standard deviation (N - 1); 0 in a group of one episode."""
    count: Tensor
    """Episodes of the group."""


def group_statistics(token_rewards: Tensor, groups: Tensor, episodes: Tensor) -> GroupStatistics:
    """Mean, deviation and size of each row's group, over distinct episodes.

    rewards [[1], [1], [3]], groups [0, 0, 0], episodes [0, 0, 1]   (episode 0 has two turns)
    -> mean [2, 2, 2], std [1.414, 1.414, 1.414], count [2, 2, 2]
    """
    pairs = torch.stack([groups, episodes], dim=1)
    distinct, row_episode = torch.unique(pairs, dim=0, return_inverse=True)  # [episodes, 2], [batch]
    _, episode_group = torch.unique(distinct[:, 0], return_inverse=True)  # [episodes]
    row_scores = token_rewards.double().sum(-1)  # [batch]
    scores = _mean_by(row_scores, row_episode, len(distinct))  # [episodes]
    num_groups = int(episode_group.max()) + 1 if len(distinct) else 0
    count = torch.bincount(episode_group, minlength=num_groups).to(scores.dtype)  # [groups]
    mean = _sum_by(scores, episode_group, num_groups) / count
    squares = _sum_by((scores - mean[episode_group]) ** 2, episode_group, num_groups)
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    row_group = episode_group[row_episode]
    return GroupStatistics(
        scores=row_scores,
        episode_scores=scores[row_episode],
        mean=mean[row_group],
        std=std[row_group],
        count=count[row_group],
    )


def grpo(
    token_rewards: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    groups: Tensor,  # [batch]
    episodes: Tensor,  # [batch]
    *,
    norm_by_std: bool = True,
) -> tuple[Tensor, Tensor]:
    """A = (R - mean) / (std + 1e-6) over the group (GRPO, Shao et al., arXiv 2402.03300).

    Without `norm_by_std`: A = R - mean (Dr.GRPO, Liu et al., arXiv 2503.20783). A group of one episode has
    nothing to be compared with: mean 0 and std 1.

    scores [1, 0, 0, 3] of one group -> [0, -.707, -.707, 1.414]; Dr.GRPO [0, -1, -1, 2]
    """
    stats = group_statistics(token_rewards, groups, episodes)
    is_alone = stats.count == 1
    advantages = stats.scores - stats.mean.masked_fill(is_alone, 0.0)
    if norm_by_std:
        advantages = advantages / (stats.std.masked_fill(is_alone, 1.0) + EPS)
    return _broadcast(advantages, mask)


def brpo(token_rewards: Tensor, mask: Tensor, groups: Tensor, episodes: Tensor, *, norm_by_std: bool = True):
    """GRPO with the whole batch as one group.

    scores [1, 0 | 0, 3] of two groups -> [0, -.707, -.707, 1.414]
    """
    return grpo(token_rewards, mask, torch.zeros_like(groups), _number(groups, episodes), norm_by_std=norm_by_std)


def arpo(token_rewards: Tensor, mask: Tensor, groups: Tensor, episodes: Tensor) -> tuple[Tensor, Tensor]:
    """Every episode alone: A = R (up to GRPO's 1e-6 in the divisor).

    scores [1, 0, 0, 3] -> [1, 0, 0, 3]
    """
    alone = _number(groups, episodes)
    return grpo(token_rewards, mask, alone, alone)


def rloo(token_rewards: Tensor, mask: Tensor, groups: Tensor, episodes: Tensor) -> tuple[Tensor, Tensor]:
    """A = R - mean of the other episodes of the group (RLOO, Ahmadian et al., arXiv 2402.14740).

    The others' mean is mean - (R_i - mean) / (n - 1). An episode alone keeps its score.

    scores [1, 0, 0, 3] of one group -> [0, -4/3, -4/3, 8/3]
    """
    stats = group_statistics(token_rewards, groups, episodes)
    # The whole episode is left out, not this row alone: a baseline that knows the episode's own actions is no baseline.
    others = stats.mean - (stats.episode_scores - stats.mean) / (stats.count - 1).clamp(min=1)
    return _broadcast(stats.scores - others.masked_fill(stats.count == 1, 0.0), mask)


def reinforce_plus_plus(token_rewards: Tensor, mask: Tensor, *, gamma: float) -> tuple[Tensor, Tensor]:
    """Discounted rewards to go, whitened over the batch (REINFORCE++, Hu et al., arXiv 2501.03262).

    G_t = r_t + gamma * G_{t+1} with t+1 the next token under the mask. No groups, no critic.

    rewards [0, 0, 1], mask [1, 0, 1], gamma = .9 -> returns [.9, 0, 1]
    """
    # Which is GAE without a critic: all values 0.
    return gae(token_rewards, torch.zeros_like(token_rewards), mask, gamma=gamma, lam=1.0)


def reinforce_plus_plus_baseline(
    token_rewards: Tensor, mask: Tensor, groups: Tensor, episodes: Tensor
) -> tuple[Tensor, Tensor]:
    """R minus the mean of the group, whitened over the tokens of the batch (REINFORCE++-baseline, arXiv 2501.03262).

    One token each, scores [0, 2 | 0, 4] of two groups -> centred [-1, 1, -2, 2] -> [-.548, .548, -1.095, 1.095]
    """
    centred, _ = grpo(token_rewards, mask, groups, episodes, norm_by_std=False)
    advantages = masked_whiten(centred, mask)
    return advantages, advantages


def _broadcast(advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """One number per row onto its sampled tokens; without a critic the returns are the advantages."""
    spread = advantages.unsqueeze(-1).float() * mask
    return spread, spread


def _sum_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, index, values)


def _mean_by(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Means of the values with each index, [size]; exact where they are equal."""
    low = torch.full((size,), torch.inf, dtype=values.dtype, device=values.device)
    low = low.scatter_reduce(0, index, values, reduce="amin")
    return low + _sum_by(values - low[index], index, size) / torch.bincount(index, minlength=size)


def _number(groups: Tensor, episodes: Tensor) -> Tensor:  # [batch]
    """One number per (group, episode): episode numbers may repeat from group to group."""
    return torch.unique(torch.stack([groups, episodes], dim=1), dim=0, return_inverse=True)[1]
