"""Drawing tokens with noise that depends on the reply and the position only, never on the batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import SamplingParams

MASK = 0xFFFFFFFFFFFFFFFF
"""Of the 64 bits of a seed."""
_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _splitmix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output function (Steele et al. 2014), elementwise on uint64."""
    with np.errstate(over="ignore"):
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * _MIX1
        x = (x ^ (x >> np.uint64(27))) * _MIX2
        return x ^ (x >> np.uint64(31))


def uniform_noise(seeds: Iterable[int], positions: Iterable[int]) -> np.ndarray:
    """A number in [0, 1) with 53 random bits for each (seed, position)."""
    keys, counts = (np.array([int(x) & MASK for x in numbers], dtype=np.uint64) for numbers in (seeds, positions))
    bits = _splitmix(_splitmix(keys) ^ counts)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class BatchParams:
    """The sampling parameters of a batch as tensors, made once while the batch stays the same."""

    def __init__(self, params: Sequence[SamplingParams], device: torch.device) -> None:
        self.is_greedy = torch.tensor([p.is_greedy for p in params], device=device)
        self.all_greedy = all(p.is_greedy for p in params)
        self.any_greedy = any(p.is_greedy for p in params)
        # Greedy replies report their log-probs at temperature 1.
        self.temperature = torch.tensor([p.temperature or 1.0 for p in params], device=device)[:, None]
        self.is_tempered = any(p.temperature not in (0, 1) for p in params)
        # Rows without a nucleus keep every token, also where rounding lifts the cumulative sum to 1.
        self.top_p = torch.tensor([p.top_p if p.top_p < 1 else math.inf for p in params], device=device)[:, None]
        self.has_top_p = any(p.top_p < 1 for p in params)
        self.top_k = torch.tensor([p.top_k if p.top_k > 0 else 2**31 for p in params], device=device)[:, None]
        self.has_top_k = any(p.top_k > 0 for p in params)


def sample(logits: Tensor, params: BatchParams, noise: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Token, its log-prob, and the entropy in nats, for each row of logits [rows, vocab].

    Sampling inverts the cumulative distribution in vocabulary order at `noise` [rows]. Log-prob and entropy are those
    of softmax(logits / temperature), before top-p and top-k.
    """
    logits = logits.float()
    if params.is_tempered:
        logits = logits / params.temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    probs = logprobs.exp()
    # A word with logit -inf is 0 * -inf, which is not a number and counts as 0.
    entropies = (probs * logprobs).nansum(dim=-1).neg_().clamp_(min=0)
    if params.all_greedy:
        tokens = logits.argmax(dim=-1)
    else:
        cdf = _truncated(probs, params).cumsum(dim=-1, dtype=torch.float64)
        target = torch.from_numpy(noise).to(logits.device)[:, None] * cdf[:, -1:]
        tokens = torch.searchsorted(cdf, target, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
        if params.any_greedy:
            tokens = torch.where(params.is_greedy, logits.argmax(dim=-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0], entropies


def _truncated(probs: Tensor, params: BatchParams) -> Tensor:
    """Zero the tokens outside the k likeliest and outside the nucleus; the likeliest token always stays."""
    if not (params.has_top_p or params.has_top_k):
        return probs
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if params.has_top_k:
        keep &= torch.arange(probs.shape[-1], device=probs.device) < params.top_k
        ordered = ordered * keep
    if params.has_top_p:
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
        keep &= (ordered.cumsum(dim=-1) - ordered) < params.top_p
    return probs * torch.zeros_like(keep).scatter(1, order, keep)
