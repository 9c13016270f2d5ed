"""Drawing tokens with noise that depends on the reply, the position and the token only, never on the batch.

Each token has an exponential time of its own, keyed by the reply's seed, the position and the token; the first to
arrive at its rate is drawn (the Gumbel-max trick, without the logarithm of the rate). Two models that nearly agree
draw the same token but where one of the two tokens concerned changed its probability. A large vocabulary is raced in
two rounds, chunks by their mass and then the tokens of the winner, so that few keys are hashed.
docs/performance.md has the counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import SamplingParams

MASK = 0xFFFFFFFFFFFFFFFF
"""Of the 64 bits of a seed."""
CHUNK = 4096
"""Tokens that race with each other; all engines must agree on it."""
_WORD = 0xFFFFFFFF
_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _splitmix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output function (Steele et al. 2014), elementwise on uint64."""
    with np.errstate(over="ignore"):
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * _MIX1
        x = (x ^ (x >> np.uint64(27))) * _MIX2
        return x ^ (x >> np.uint64(31))


def noise_keys(seeds: Iterable[int], positions: Iterable[int]) -> np.ndarray:
    """64 random bits for each (seed, position), as int64."""
    keys, counts = (np.array([int(x) & MASK for x in numbers], dtype=np.uint64) for numbers in (seeds, positions))
    return _splitmix(_splitmix(keys) ^ counts).view(np.int64)


def arrival_times(keys: np.ndarray, numbers: Tensor) -> Tensor:
    """Exponential times [rows, n] in float32 of the numbers [n] or [rows, n] in 0 .. 2**32 - 1 under the keys [rows].

    NumPy's 32-bit integers are much the fastest on a CPU, and torch has none to multiply.
    """
    if numbers.device.type == "cpu":
        words = keys.view(np.uint32).reshape(-1, 2)
        bits = torch.from_numpy(_scrambled(numbers.numpy().astype(np.uint32), words[:, :1], words[:, 1:]).astype("f4"))
    else:
        on_device = torch.from_numpy(keys).to(numbers.device)[:, None]
        bits = _scrambled(numbers, on_device & _WORD, (on_device >> 32) & _WORD).float()
    # Small times need all their bits. The largest is 16.6; that of 1 would be infinite.
    return bits.add_(0.5).mul_(-(2.0**-32)).clamp_(min=2.0**-24 - 1).log1p_().neg_()


def _scrambled(numbers: Any, low: Any, high: Any) -> Any:
    """Wellons' lowbias32 (2018) of `low` and the number, with `high` coming in halfway; integers of 32 bits or more."""
    bits = numbers ^ low
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits &= _WORD
    bits ^= high
    bits ^= bits >> 15
    bits *= 0x846CA68B
    bits &= _WORD
    bits ^= bits >> 16
    return bits


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


def sample(logits: Tensor, params: BatchParams, keys: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Token, its log-prob, and the entropy in nats, for each row of logits [rows, vocab] and its key of the noise.

    Log-prob and entropy are those of softmax(logits / temperature), before top-p and top-k.
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
        tokens = _race(_truncated(probs, params), keys)
        if params.any_greedy:
            tokens = torch.where(params.is_greedy, logits.argmax(dim=-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0], entropies


def _race(rates: Tensor, keys: np.ndarray) -> Tensor:
    """The token of each row that arrives first, with these rates [rows, vocab], in the chunk that arrives first."""
    tokens = torch.arange(min(rates.shape[1], CHUNK), device=rates.device)
    if rates.shape[1] <= CHUNK:
        return _largest(rates / arrival_times(keys, tokens))
    chunks = torch.nn.functional.pad(rates, (0, -rates.shape[1] % CHUNK)).unflatten(1, (-1, CHUNK))
    numbers = _WORD - torch.arange(chunks.shape[1], device=rates.device)
    chunk = _largest(chunks.sum(dim=2) / arrival_times(keys, numbers))
    tokens = chunk[:, None] * CHUNK + tokens
    rates = chunks[torch.arange(len(chunks), device=rates.device), chunk]
    return chunk * CHUNK + _largest(rates / arrival_times(keys, tokens))


def _largest(values: Tensor) -> Tensor:
    """argmax of each row; that of torch takes eight times as long on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmax(axis=1))
    return values.argmax(dim=1)


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
