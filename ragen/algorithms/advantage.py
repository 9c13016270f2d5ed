"""From rewards to advantages: the estimators by name, and what happens to their result.

The formulas are in gae.py (with a critic), group_advantage.py (groups of episodes) and gigpo.py (groups of steps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

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
from ragen.config.estimators import KEY
from ragen.config.extensions import load
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
    entropies: Tensor | None = None
    """[batch, seq] Of the distribution each token was drawn from, from the engine; for estimators of one's own."""
    values: Tensor | None = None
    """[batch, seq] Values before each token; gae and bi_level_gae."""
    turn_ends: Tensor | None = None
    """[batch, seq] 1 on the last token of each reply; bi_level_gae."""
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


ESTIMATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "gae": gae,
    "bi_level_gae": bi_level_gae,
    "grpo": grpo,
    "brpo": brpo,
    "arpo": arpo,
    "rloo": rloo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "gigpo": gigpo,
}
"""Name -> function of fields of AdvantageInputs, which its parameters name. It returns (advantages, returns), both
[batch, seq] and 0 outside the mask. What has to be computed for it first is declared in ragen/config/estimators.py."""


def estimator(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """The estimator of that name: built in, or one's own."""
    return ESTIMATORS[name] if name in ESTIMATORS else load("estimators", name, KEY)


@torch.no_grad()
def compute_advantages(name: str, inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
    """Advantages and returns, [batch, seq], by the estimator of that name."""
    function = estimator(name)
    names = signature(function).parameters.keys() & AdvantageInputs.__dataclass_fields__.keys()
    given = {field: getattr(inputs, field) for field in names}
    missing = [field for field, value in given.items() if value is None]
    assert not missing, f"{name} needs {', '.join(sorted(missing))}"
    return function(**given)


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
