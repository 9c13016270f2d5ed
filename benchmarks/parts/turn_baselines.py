"""Group baselines per turn: estimators of one's own, of which one is known to be biased.

`algorithm.adv_estimator=parts.turn_baselines:per_turn_index`, in `full` context mode with `high_level_gamma=1`.
"""

from __future__ import annotations

import torch
from torch import Tensor

import ragen
from ragen.algorithms.gigpo import NO_TURN


@ragen.needs("turns")
def per_turn_index(
    mask: Tensor,  # [batch, seq]
    groups: Tensor,  # [batch]
    turn_ids: Tensor,  # [batch, seq]
    anchors: Tensor,  # [batch, turns]
    step_returns: Tensor,  # [batch, turns]
) -> tuple[Tensor, Tensor]:
    """A_t = sum over s >= t of (r_s - mean of r_s among the episodes of the group that have a turn s).

    How many means are subtracted depends on when the episode itself stops: a baseline that depends on the action
    (verl issue 7244, on the normalisation of MT-GRPO, arXiv 2505.11821).

    rewards [[1, 2], [3]] -> means [2, 2] -> [[-1 + 0, 0], [1]]
    """
    after = torch.nn.functional.pad(step_returns, (0, 1))[:, 1:]
    has_turn = anchors != NO_TURN
    rewards = (step_returns - after) * has_turn
    is_mate = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(rewards.dtype)  # [batch, batch]
    means = (is_mate @ rewards) / (is_mate @ has_turn.to(rewards.dtype)).clamp(min=1)
    centred = (rewards - means) * has_turn
    return _spread(centred.flip(1).cumsum(1).flip(1), turn_ids, mask)


@ragen.needs("turns")
def turn_leave_one_out(mask: Tensor, groups: Tensor, turn_ids: Tensor, step_returns: Tensor) -> tuple[Tensor, Tensor]:
    """A_t = R_t - mean of R_t over the other episodes of the group, 0 for those that have stopped before t.

    R_t is the reward from turn t on. The others know nothing of the episode's own actions.

    returns [[3, 2], [3]] -> [[3 - 3, 2 - 0], [3 - 3]]
    """
    is_mate = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(step_returns.dtype).fill_diagonal_(0)  # [batch, batch]
    others = (is_mate @ step_returns) / is_mate.sum(1, keepdim=True).clamp(min=1)
    return _spread(step_returns - others, turn_ids, mask)


def _spread(per_turn: Tensor, turn_ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """One number per turn onto its tokens."""
    advantages = torch.gather(per_turn, 1, turn_ids.clamp(min=0)) * (turn_ids != NO_TURN) * mask
    return advantages, advantages
