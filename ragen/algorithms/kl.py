"""KL divergence to the reference model: estimators per token, KL in the reward, and the weight's controllers.

With lp and ref the log-probs of a sampled token under the policy and the reference (Schulman, "Approximating KL
Divergence", http://joschu.net/blog/kl-approx.html):

k1 = lp - ref                       unbiased, high variance, negative at times
k2 = (lp - ref)^2 / 2               its expected gradient is that of the KL
k3 = exp(ref - lp) - (ref - lp) - 1 unbiased, never negative

As a loss on on-policy samples the gradient of k1 is zero in expectation: it holds nothing back. k2 and k3 do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ragen.algorithms.masked import masked_mean
from ragen.config.trainer import KlCtrlConfig


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """lp -1, ref -1.5 -> .5"""
    return logprobs - ref_logprobs


def absolute(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """lp -2, ref -1 -> 1"""
    return (logprobs - ref_logprobs).abs()


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """lp -1, ref -1.5 -> .125"""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """lp -1, ref -1.5 -> exp(-.5) + .5 - 1 = .1065; at most 10"""
    difference = (ref_logprobs - logprobs).clamp(-20.0, 20.0)
    return (difference.exp() - difference - 1).clamp(-10.0, 10.0)


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": k1,
    "k1": k1,
    "abs": absolute,
    "mse": k2,
    "k2": k2,
    "low_var_kl": k3,
    "k3": k3,
}
"""Name -> estimator from the log-probs of the sampled tokens. `full` needs whole distributions: `full_kl`."""


def token_kl(logprobs: Tensor, ref_logprobs: Tensor, name: str) -> Tensor:
    """The KL of each token by the estimator of that name.

    A trailing + takes the value of the estimator and the gradient of k2 ("k3+"): both are then unbiased.

    lp -1, ref -1.5: k1 and k1+ -> .5; the gradient by lp is 1 for k1, .5 for k1+
    """
    value = KL_ESTIMATORS[name.removesuffix("+")](logprobs, ref_logprobs)
    if not name.endswith("+"):
        return value
    surrogate = k2(logprobs, ref_logprobs)
    return surrogate - surrogate.detach() + value.detach()


def full_kl(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:  # [..., vocab] -> [...]
    """The exact KL of each token from both whole distributions: sum_v p(v) * (log p(v) - log q(v)).

    p [.5, .5], q [.25, .75] -> .5 * log 2 + .5 * log(2/3) = .1438
    """
    return (logprobs.exp() * (logprobs - ref_logprobs)).sum(-1)


def kl_in_reward(
    token_scores: Tensor,  # [batch, seq]
    kl: Tensor,  # [batch, seq]
    mask: Tensor,  # [batch, seq]
    *,
    beta: float,
) -> tuple[Tensor, float]:
    """Token rewards less beta * KL on sampled tokens, and the batch's KL: the mean over rows of their masked means.

    scores [[0, 1]], kl [[.5, .1]], beta .1 -> rewards [[-.05, .99]], KL .3
    """
    rewards = token_scores - beta * kl * mask
    return rewards, masked_mean(kl, mask, dim=-1).mean().item()


@dataclass(kw_only=True, slots=True)
class KlController:
    """The weight of the KL in the reward: constant, or steered towards a target.

    value *= 1 + clip(KL / target - 1, -0.2, 0.2) * num_samples / horizon     Ziegler et al., arXiv 1909.08593, 2.2

    value .001, KL .3, target .1, 128 samples, horizon 10000 -> .001 * (1 + .2 * .0128) = .00100256
    """

    value: float
    target: float
    horizon: int
    is_adaptive: bool

    @classmethod
    def from_config(cls, control: KlCtrlConfig, state: Mapping[str, Any] | None = None) -> KlController:
        """The controller of a configuration; `state`, from `to_json`, continues where an adaptive one stood."""
        is_adaptive = control.type == "adaptive"
        value = float(state["value"]) if state and is_adaptive else control.kl_coef
        return cls(value=value, target=control.target_kl, horizon=control.horizon, is_adaptive=is_adaptive)

    def update(self, current_kl: float, num_samples: int) -> None:
        """Called once per batch, after its rewards were computed with `value`."""
        if self.is_adaptive:
            error = min(max(current_kl / self.target - 1, -0.2), 0.2)
            self.value *= 1 + error * num_samples / self.horizon

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value}
