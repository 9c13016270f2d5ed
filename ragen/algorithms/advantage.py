"""From rewards to advantages: the estimators by name, and what happens to their result.

The formulas are in gae.py (with a critic), group_advantage.py (groups of episodes) and gigpo.py (groups of steps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.gae import bi_level_gae, gae
from ragen.algorithms.gigpo import gigpo
from ragen.algorithms.group_advantage import (
    EPS,
    arpo,
    brpo,
    group_statistics,
    grpo,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
)
from ragen.types import Metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageInputs:
    """A batch as estimators see it; every estimator reads what it needs."""

    token_rewards: Tensor
    """[batch, seq] Rewards at the tokens that earned them; in a turn-level row the episode's total on the last."""
    mask: Tensor
    """[batch, seq] 1 on sampled tokens."""
    groups: Tensor
    """[batch] Group of each row."""
    episodes: Tensor
    """[batch] Episode of each row within its group; rows with equal (group, episode) are turns of one episode."""
    values: Tensor | None = None
    """[batch, seq] Values before each token; gae and bi_level_gae."""
    turn_ends: Tensor | None = None
    """[batch, seq] 1 on the last token of each reply; bi_level_gae. None reads them from the mask."""
    turn_ids: Tensor | None = None
    """[batch, seq] Turn of each token within its row, -1 outside replies; gigpo."""
    anchors: Tensor | None = None
    """[batch, turns] Number of the state each turn started from, -1 where there is no turn; gigpo."""
    step_returns: Tensor | None = None
    """[batch, turns] Discounted rewards from each turn on; gigpo."""
    gamma: float = 1.0
    """Discount per token."""
    lam: float = 1.0
    high_level_gamma: float = 0.95
    """Discount per turn of bi_level_gae."""
    norm_by_std: bool = True
    """Divide by the deviation of the group; False is Dr.GRPO."""
    step_weight: float = 1.0
    """Weight of the steps beside the episodes in gigpo."""


def _gae(x: AdvantageInputs) -> tuple[Tensor, Tensor]:
    return gae(x.token_rewards, _given(x.values, "values"), x.mask, gamma=x.gamma, lam=x.lam)


def _bi_level_gae(x: AdvantageInputs) -> tuple[Tensor, Tensor]:
    return bi_level_gae(
        x.token_rewards,
        _given(x.values, "values"),
        x.mask,
        gamma=x.gamma,
        lam=x.lam,
        high_level_gamma=x.high_level_gamma,
        turn_ends=x.turn_ends,
    )


def _gigpo(x: AdvantageInputs) -> tuple[Tensor, Tensor]:
    return gigpo(
        x.token_rewards,
        x.mask,
        x.groups,
        x.episodes,
        turn_ids=_given(x.turn_ids, "turn_ids"),
        anchors=_given(x.anchors, "anchors"),
        step_returns=_given(x.step_returns, "step_returns"),
        step_weight=x.step_weight,
        norm_by_std=x.norm_by_std,
    )


def _given(tensor: Tensor | None, name: str) -> Tensor:
    assert tensor is not None, f"this estimator needs {name}"
    return tensor


ESTIMATORS: dict[str, Callable[[AdvantageInputs], tuple[Tensor, Tensor]]] = {
    "gae": _gae,
    "bi_level_gae": _bi_level_gae,
    "grpo": lambda x: grpo(x.token_rewards, x.mask, x.groups, x.episodes, norm_by_std=x.norm_by_std),
    "brpo": lambda x: brpo(x.token_rewards, x.mask, x.groups, x.episodes, norm_by_std=x.norm_by_std),
    "arpo": lambda x: arpo(x.token_rewards, x.mask, x.groups, x.episodes),
    "rloo": lambda x: rloo(x.token_rewards, x.mask, x.groups, x.episodes),
    "reinforce_plus_plus": lambda x: reinforce_plus_plus(x.token_rewards, x.mask, gamma=x.gamma),
    "reinforce_plus_plus_baseline": lambda x: reinforce_plus_plus_baseline(
        x.token_rewards, x.mask, x.groups, x.episodes
    ),
    "gigpo": _gigpo,
}
"""Name -> function of a batch that returns (advantages, returns), both [batch, seq] and 0 outside the mask."""


@torch.no_grad()
def compute_advantages(name: str, inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
    """Advantages and returns, [batch, seq], by the estimator of that name."""
    return ESTIMATORS[name](inputs)


LOSS_SCALINGS: dict[str, Callable[[float], float]] = {
    "none": lambda kept_ratio: 1.0,
    "linear": lambda kept_ratio: kept_ratio,
    "sqrt": lambda kept_ratio: kept_ratio**0.5,
}
"""filter_loss_scaling -> factor of the advantages, from the share of groups the rollout filter kept."""


@torch.no_grad()
def postprocess(
    advantages: Tensor,  # [batch, seq]
    inputs: AdvantageInputs,
    *,
    soft_reweight: bool = False,
    filter_loss_scaling: str = "none",
    kept_ratio: float = 1.0,
    length_weight: bool = False,
    zero_task_advantage: bool = False,
) -> tuple[Tensor, Metrics]:
    """What follows the estimator, in this order: soft reweighting, loss scaling, length weight, zeroing.

    `zero_task_advantage` leaves only the KL and entropy terms to train on.
    """
    metrics: Metrics = {}
    if soft_reweight:
        weights = soft_weights(inputs)
        advantages = advantages * weights.unsqueeze(-1)
        metrics = {
            "soft_reweight_min": weights.min().item(),
            "soft_reweight_max": weights.max().item(),
            "soft_reweight_mean": weights.mean().item(),
        }
    advantages = advantages * LOSS_SCALINGS[filter_loss_scaling](kept_ratio)
    if length_weight:
        advantages = advantages / relative_lengths(inputs.mask).unsqueeze(-1)
    if zero_task_advantage:
        advantages = torch.zeros_like(advantages)
    return advantages, metrics


def soft_weights(inputs: AdvantageInputs) -> Tensor:  # [batch]
    """Each row's weight: the score deviation of its group, relative to the largest of the batch.

    Group deviations [1, 2] -> weights [.5, 1] (up to the 1e-6 in the divisor). GRPO's division by the deviation
    makes all groups equally loud; this gives the groups with more signal their voice back.
    """
    std = group_statistics(inputs.token_rewards, inputs.groups, inputs.episodes).std
    return (std / (std.max() + EPS)).float()


def relative_lengths(mask: Tensor) -> Tensor:  # [batch, seq] -> [batch]
    """Sampled tokens of each row over their mean: lengths [1, 3] -> [.5, 1.5]."""
    lengths = mask.sum(-1).float()
    return (lengths + EPS) / lengths.mean()
