"""RL-ZVP, an estimator of one's own: algorithm.adv_estimator=ragen.reproduce.rl_zvp:rl_zvp"""

from __future__ import annotations

import torch
from torch import Tensor

from ragen.algorithms.group_advantage import EPS, group_statistics, grpo

WEIGHT = 0.1
"""Of the advantages of groups without variance, beside GRPO's, which are about 1: the paper's alpha."""


def rl_zvp(
    token_rewards: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    groups: Tensor,  # [batch]
    episodes: Tensor,  # [batch]
    entropies: Tensor,  # [batch, seq]
    norm_by_std: bool = True,
) -> tuple[Tensor, Tensor]:
    """GRPO, and where a group has no variance an advantage by entropy (RL-ZVP, Le et al., arXiv 2509.21880).

    All solved (a score above zero): A_t = 0.1 H_t. None solved: A_t = -0.1 (max H - H_t), the largest of the row.
    Tokens that were open weigh more where the outcome is right, and less where it is wrong. The filter must keep such
    groups: rollout_filter_include_zero=True.

    scores [1, 1], entropies [[.5, 0], [1, .2]] -> [[.05, 0], [.1, .02]]; scores [0, 0] -> [[0, -.05], [0, -.08]]
    """
    advantages, _ = grpo(token_rewards, mask, groups, episodes, norm_by_std=norm_by_std)
    stats = group_statistics(token_rewards, groups, episodes)
    is_flat = ((stats.std <= EPS) & (stats.count > 1)).unsqueeze(-1)
    is_solved = (stats.scores > 0).unsqueeze(-1)
    highest = (entropies * mask).amax(-1, keepdim=True)
    shaped = WEIGHT * torch.where(is_solved, entropies, entropies - highest) * mask
    advantages = torch.where(is_flat, shaped, advantages)
    return advantages, advantages
