"""GiGPO: groups of steps that started from the same state, inside the groups of episodes.

Feng et al., "Group-in-Group Policy Optimization for LLM Agent Training", arXiv 2505.10978. Members of a group play
the same level, so the same state comes up again and again. What followed the actions taken there is compared: credit
for single turns, without a critic and without further rollouts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ragen.algorithms.group_advantage import EPS, group_statistics, grpo

NO_TURN = -1
"""Anchor of a turn that does not exist, and turn number of a token outside replies."""


def gigpo(
    token_rewards: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    groups: Tensor,  # [batch]
    episodes: Tensor,  # [batch]
    *,
    turn_ids: Tensor,  # [batch, seq]
    anchors: Tensor,  # [batch, turns]
    step_returns: Tensor,  # [batch, turns]
    step_weight: float = 1.0,
    norm_by_std: bool = True,
) -> tuple[Tensor, Tensor]:
    """A = A^E + step_weight * A^S: GRPO over episodes plus the same formula over steps from one state.

    turn_ids      the turn of each token, counted from 0 in its row, NO_TURN outside replies
    anchors       a number per turn: equal numbers within a group are equal states (`number_anchors`)
    step_returns  the discounted rewards from the turn on (`discounted_returns`)

    A state that was seen once has nothing to be compared with: its A^S is 0, and GiGPO is GRPO there. In the limited
    context modes a row is one turn, so `turns` is 1.

    Two episodes of one group and two turns each, no division by std, scores [1, 0];
    anchors [[7, 8], [7, 9]], returns [[.9, 1], [0, 0]]
    -> A^E [.5, -.5], A^S [[.45, 0], [-.45, 0]] -> per turn [[.95, .5], [-.95, -.5]]
    """
    episode_advantages, _ = grpo(token_rewards, mask, groups, episodes, norm_by_std=norm_by_std)
    steps = step_advantages(step_returns, anchors, groups, norm_by_std=norm_by_std)  # [batch, turns]
    per_token = torch.gather(steps, 1, turn_ids.clamp(min=0)) * (turn_ids != NO_TURN) * mask  # [batch, seq]
    advantages = episode_advantages + step_weight * per_token
    return advantages, advantages


def step_advantages(
    step_returns: Tensor,  # [batch, turns]
    anchors: Tensor,  # [batch, turns]
    groups: Tensor,  # [batch]
    *,
    norm_by_std: bool,
) -> Tensor:  # [batch, turns]
    """(R - mean) / (std + 1e-6) of every turn among the turns of its group with the same anchor."""
    is_turn = anchors != NO_TURN
    keys = torch.stack([groups.unsqueeze(1).expand_as(anchors)[is_turn], anchors[is_turn]], dim=1)  # [steps, 2]
    _, state = torch.unique(keys, dim=0, return_inverse=True)  # [steps]
    stats = group_statistics(step_returns[is_turn].unsqueeze(1), state, torch.arange(len(state), device=state.device))
    centred = stats.scores - stats.mean
    if norm_by_std:
        centred = centred / (stats.std + EPS)
    advantages = torch.zeros_like(step_returns)
    advantages[is_turn] = centred.to(step_returns.dtype)
    return advantages


def number_anchors(states: Sequence[Sequence[Hashable]]) -> Tensor:  # [batch, turns]
    """States (observations as text, say) as numbers, the same for equal states; rows are filled up with NO_TURN.

    [["A", "B"], ["A"]] -> [[0, 1], [0, -1]]
    """
    numbers: dict[Hashable, int] = {}
    rows = [[numbers.setdefault(state, len(numbers)) for state in row] for row in states]
    return _pad(rows, fill=NO_TURN, dtype=torch.long)


def discounted_returns(rewards: Sequence[Sequence[float]], gamma: float) -> Tensor:  # [batch, turns]
    """What follows from each turn on: R_t = r_t + gamma * R_{t+1}; rows are filled up with 0.

    [[0, 1], [2]], gamma = .9 -> [[.9, 1], [2, 0]]
    """
    rows = [[*accumulate(reversed(row), lambda after, reward: reward + gamma * after)][::-1] for row in rewards]
    return _pad(rows, fill=0.0, dtype=torch.float32)


def _pad(rows: Sequence[Sequence[float]], *, fill: float, dtype: torch.dtype) -> Tensor:
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows], dtype=dtype).reshape(len(rows), width)
