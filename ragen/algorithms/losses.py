"""Policy and value losses, token by token.

Every function returns the loss of each token and metric tensors of the same shape. Nothing is averaged here: the
caller multiplies with the weights of `masked.token_weights`, which belong to the whole mini batch, so the sums over
micro batches and ranks are exact. Metrics are averaged with the token-mean weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.masked import zero_outside
from ragen.config.extensions import load

KEY = "actor_rollout_ref.actor.policy_loss"

MAX_LOG_RATIO = 20.0
"""exp(20) = 4.9e8: beyond it a ratio only overflows."""

SAPO_TEMPERATURES = (1.0, 1.05)
"""For advantages above zero, and for the others: the paper's, so that what is to become rarer is damped sooner."""

TokenMetrics = dict[str, Tensor]
"""Metric path -> value of each token, without gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyInputs:
    """What a policy loss reads; all tensors are [batch, seq], one sequence per row."""

    logprobs: Tensor
    """Under the policy that is trained."""
    old_logprobs: Tensor
    """Under the policy that sampled."""
    advantages: Tensor
    mask: Tensor
    """1 on sampled tokens."""
    clip_low: float
    clip_high: float
    clip_c: float
    """Bound of the loss for negative advantages; ppo."""


PolicyLoss = Callable[[PolicyInputs], tuple[Tensor, TokenMetrics]]


def ppo(x: PolicyInputs) -> tuple[Tensor, TokenMetrics]:
    """The clipped surrogate, with its own bound on each side and for very unlikely actions.

    ratio = exp(logprobs - old)
    loss  = max(-A * ratio, -A * clip(ratio, 1 - clip_low, 1 + clip_high))        PPO, arXiv 1707.06347
    clip_high > clip_low leaves room for unlikely tokens to grow                  clip-higher, DAPO, arXiv 2503.14476
    loss  = min(loss, -A * clip_c) where A < 0                                    dual clip, arXiv 1912.09729

    ratio 1.5, A 1, clip .2/.28 -> loss -1.28 (clipped); ratio 5, A -1, clip_c 3 -> loss 3 (not 5)
    """
    log_ratio = (x.logprobs - x.old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    loss, is_clipped = _clipped_surrogate(log_ratio.exp(), x)
    bound = -x.advantages * x.clip_c
    is_bounded = (x.advantages < 0) & (loss > bound)
    metrics = _metrics(is_clipped, -log_ratio, is_bounded)
    return torch.where(x.advantages < 0, torch.minimum(loss, bound), loss), metrics


def gspo(x: PolicyInputs) -> tuple[Tensor, TokenMetrics]:
    """The clipped surrogate with one ratio per sequence (Zheng et al., arXiv 2507.18071).

    s = exp(mean over the sequence's tokens of (logprobs - old))

    is the geometric mean of the token ratios. Its value is shared by all tokens of the sequence; the gradient
    reaches each token through its own log-prob (the paper's GSPO-token form, equal to GSPO when the advantage is
    constant in the sequence). The paper averages by sequence (loss_agg_mode=seq-mean-token-mean) and clips very
    tightly (3e-4 and 4e-4): s varies far less than a token's ratio. `clip_c` is not used.

    log-ratios [.2, .4], A 1 -> s = exp(.3) = 1.35 for both tokens, clipped at 1 + clip_high
    """
    token_log_ratio = x.logprobs - x.old_logprobs
    sums = zero_outside(token_log_ratio.detach(), x.mask).sum(-1, keepdim=True)  # [batch, 1]
    mean = sums / x.mask.sum(-1, keepdim=True).clamp(min=1)
    log_ratio = x.logprobs - x.logprobs.detach() + mean
    loss, is_clipped = _clipped_surrogate(log_ratio.clamp(max=10.0).exp(), x)
    return loss, _metrics(is_clipped, -token_log_ratio)


def cispo(x: PolicyInputs) -> tuple[Tensor, TokenMetrics]:
    """REINFORCE with clipped importance weights (CISPO, MiniMax-M1, arXiv 2506.13585).

    loss = -sg(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logprobs

    Clipping bounds the weight of a token, but never silences its gradient as PPO's does. The paper clips above
    only: clip_low >= 1. `clip_c` is not used.

    ratio 1.5, A 1, clip_high .28 -> gradient of the loss by the log-prob -1.28; PPO's is 0
    """
    log_ratio = (x.logprobs - x.old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp().detach()
    weight = ratio.clamp(1 - x.clip_low, 1 + x.clip_high)
    return -weight * x.advantages * x.logprobs, _metrics(weight != ratio, -log_ratio)


def sapo(x: PolicyInputs) -> tuple[Tensor, TokenMetrics]:
    """A soft gate where PPO has a clip (SAPO, Gao et al., arXiv 2511.20347).

    gate = 4 / tau * sigmoid(tau * (ratio - 1)), tau 1 where A > 0, else 1.05
    loss = -A * gate

    The gradient by the ratio, 4 p (1 - p) with p that sigmoid, is 1 on policy and fades on both sides without ever
    being 0. Nothing is clipped, so no clip key is used and `pg_clipfrac` stays 0.

    ratio 1.5, A 1 -> loss -4 sigmoid(.5) = -2.490, gradient by the log-prob -1.5 * .940 = -1.410; PPO's is 0
    """
    log_ratio = (x.logprobs - x.old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    above, below = SAPO_TEMPERATURES
    tau = torch.where(x.advantages > 0, above, below)
    gate = 4 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1))
    return -x.advantages * gate, _metrics(torch.zeros_like(gate.detach()), -log_ratio)


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "ppo": ppo,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
}


def policy_loss(name: str) -> PolicyLoss:
    """The policy loss of that name: built in, or one's own."""
    return POLICY_LOSSES[name] if name in POLICY_LOSSES else load("losses", name, KEY)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, cliprange: float) -> tuple[Tensor, TokenMetrics]:
    """0.5 * max((v - R)^2, (v_clipped - R)^2), v_clipped within `cliprange` of the old value (as PPO's code does).

    v 2, old 1, R 2, cliprange .5 -> v_clipped 1.5 -> 0.5 * max(0, .25) = .125
    """
    clipped = values.clamp(old_values - cliprange, old_values + cliprange)
    error, clipped_error = (values - returns) ** 2, (clipped - returns) ** 2
    metrics = {
        "vf_clipfrac": (clipped_error > error).to(values.dtype),
        "vpred_mean": values.detach(),
    }
    return 0.5 * torch.maximum(error, clipped_error), metrics


def importance_weights(old_logprobs: Tensor, engine_logprobs: Tensor, *, cap: float) -> Tensor:
    """min(pi_trainer / pi_engine, cap): corrects for tokens drawn by an engine that computes a little differently.

    The policy loss of each token is multiplied with it (truncated importance sampling, Ionides 2008; for engines
    Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"). The truncation
    bounds the variance at the price of a small bias. No gradient.

    trainer -1.0, engine -1.1, cap 2 -> exp(.1) = 1.105; trainer -1, engine -3 -> 2
    """
    log_ratio = (old_logprobs - engine_logprobs).detach()
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)


def _clipped_surrogate(ratio: Tensor, x: PolicyInputs) -> tuple[Tensor, Tensor]:
    """The worse of -A * ratio and -A * clipped ratio, and where that is the clipped one."""
    unclipped = -x.advantages * ratio
    clipped = -x.advantages * ratio.clamp(1 - x.clip_low, 1 + x.clip_high)
    return torch.maximum(unclipped, clipped), clipped > unclipped


def _metrics(is_clipped: Tensor, kl: Tensor, is_bounded: Tensor | None = None) -> TokenMetrics:
    dtype = kl.dtype
    return {
        "pg_clipfrac": is_clipped.to(dtype),
        "ppo_kl": kl.detach(),
        "pg_clipfrac_lower": torch.zeros_like(kl) if is_bounded is None else is_bounded.to(dtype),
    }
