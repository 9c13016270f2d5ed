"""Generalised advantage estimation over the tokens of several turns.

The mask marks the tokens the policy sampled. What lies between them (prompts, observations) is skipped: the next
token of the last token of a reply is the first token of the next reply.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ragen.algorithms.masked import masked_whiten, zero_outside


def gae(
    token_rewards: Tensor,  # [batch, seq]
    values: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    *,
    gamma: float,
    lam: float,
    whiten: bool = True,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of every sampled token (Schulman et al., arXiv 1506.02438).

    delta_t = r_t + gamma * V_{t+1} - V_t
    A_t     = delta_t + gamma * lam * A_{t+1},   returns = A + V

    where t+1 is the next token under the mask. `whiten` brings the advantages of the whole batch to mean 0 and
    variance 1. Everything outside the mask is 0.

    rewards [0, 0, 1], values [.1, .2, .4], mask [1, 0, 1], gamma = lam = 1, whiten=False
    -> advantages [.9, 0, .6], returns [1, 0, 1]
    """
    values, is_sampled = zero_outside(values, mask), mask.bool()
    next_value = next_advantage = torch.zeros_like(values[:, 0])  # [batch]
    advantages = torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        delta = token_rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        next_value = torch.where(is_sampled[:, t], values[:, t], next_value)
        next_advantage = torch.where(is_sampled[:, t], advantage, next_advantage)
        advantages[:, t] = next_advantage
    return _finish(advantages, values, mask, whiten)


def bi_level_gae(
    token_rewards: Tensor,  # [batch, seq]
    values: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    turn_ends: Tensor,  # [batch, seq]
    *,
    gamma: float,
    lam: float,
    high_level_gamma: float,
    whiten: bool = True,
) -> tuple[Tensor, Tensor]:
    """GAE over turns, then inside each turn over its tokens (VAGEN, Wang et al., arXiv 2510.16907).

    With e_k the last token of turn k, the turns are discounted by `high_level_gamma` (g):

    A^H_k = r_{e_k} + g * V_{e_{k+1}} - V_{e_k} + g * lam * A^H_{k+1}

    A^H_k is the advantage of the token e_k; from there GAE runs back to the first token of the turn with
    `gamma` and `lam`. `turn_ends` is 1 on the e_k.

    rewards [0, .5, 0, 1], values [.1, .2, 0, .4], mask [1, 1, 0, 1], turn_ends [0, 1, 0, 1], g = .95,
    gamma = lam = 1, whiten=False
    -> A^H [1.25, .6], advantages [1.35, 1.25, 0, .6]
    """
    values, is_sampled = zero_outside(values, mask), mask.bool()
    is_end = turn_ends.bool() & is_sampled
    zeros = torch.zeros_like(values[:, 0])  # [batch]
    next_value, next_advantage, next_turn_value, next_turn_advantage = zeros, zeros, zeros, zeros
    advantages = torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        reward, value = token_rewards[:, t], values[:, t]
        turn_advantage = reward + high_level_gamma * (next_turn_value + lam * next_turn_advantage) - value
        token_advantage = reward + gamma * (next_value + lam * next_advantage) - value
        next_turn_value = torch.where(is_end[:, t], value, next_turn_value)
        next_turn_advantage = torch.where(is_end[:, t], turn_advantage, next_turn_advantage)
        next_value = torch.where(is_sampled[:, t], value, next_value)
        advantage = torch.where(is_end[:, t], turn_advantage, token_advantage)
        next_advantage = torch.where(is_sampled[:, t], advantage, next_advantage)
        advantages[:, t] = next_advantage
    return _finish(advantages, values, mask, whiten)


def _finish(advantages: Tensor, values: Tensor, mask: Tensor, whiten: bool) -> tuple[Tensor, Tensor]:
    """Returns from the raw advantages, and the advantages as they enter the loss."""
    returns = zero_outside(advantages + values, mask)
    return (masked_whiten(advantages, mask) if whiten else zero_outside(advantages, mask)), returns
