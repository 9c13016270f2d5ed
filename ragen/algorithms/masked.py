"""Statistics over the tokens of a mask, and the weight each token has in a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

EPS = 1e-8


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the values under the mask: sum(x * m) / (sum(m) + 1e-8); 0 where the mask is empty.

    values [1, 2, 9], mask [1, 1, 0] -> 1.5
    """
    kept = zero_outside(values, mask)
    if dim is None:
        return kept.sum() / (mask.sum() + EPS)
    return kept.sum(dim) / (mask.sum(dim) + EPS)


def masked_var(values: Tensor, mask: Tensor) -> Tensor:
    """Sample variance (N - 1) of the values under the mask; at least two are needed.

    values [1, 3, 9], mask [1, 1, 0] -> 2
    """
    count = mask.sum()
    if count < 2:
        raise ValueError(f"The variance needs at least two masked tokens, got {int(count)}.")
    return masked_mean((values - masked_mean(values, mask)) ** 2, mask) * count / (count - 1)


def masked_whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the mask, 0 outside of it: (x - mean) / sqrt(var + 1e-8).

    values [1, 3, 9], mask [1, 1, 0] -> [-0.707, 0.707, 0]
    """
    mean, var = masked_mean(values, mask), masked_var(values, mask)
    return zero_outside((values - mean) * torch.rsqrt(var + EPS), mask)


def zero_outside(values: Tensor, mask: Tensor) -> Tensor:
    """The values under the mask, 0 elsewhere, whatever stood there (a product would keep nan)."""
    return torch.where(mask.bool(), values, torch.zeros((), dtype=values.dtype, device=values.device))


def _num_sequences(mask: Tensor) -> Tensor:
    return (mask.sum(-1) > 0).sum().clamp(min=1)


LOSS_AGG_MODES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "token-mean": lambda mask, _: mask / mask.sum().clamp(min=1),
    "seq-mean-token-sum": lambda mask, _: mask / _num_sequences(mask),
    "seq-mean-token-mean": lambda mask, _: mask / mask.sum(-1, keepdim=True).clamp(min=1) / _num_sequences(mask),
    "seq-mean-token-sum-norm": lambda mask, horizon: mask / _num_sequences(mask) / horizon,
}
"""Mode -> weights of the tokens of a mini batch.

token-mean               every token counts the same (DAPO, arXiv 2503.14476)
seq-mean-token-sum       every sequence's sum counts the same
seq-mean-token-mean      every sequence's mean counts the same (GRPO, arXiv 2402.03300)
seq-mean-token-sum-norm  the sum of each sequence over a fixed length (Dr.GRPO, arXiv 2503.20783)
"""


def token_weights(mask: Tensor, mode: str, *, horizon: int | None = None) -> Tensor:  # [batch, seq] -> [batch, seq]
    """The weight of every token in the loss of a whole mini batch: loss = (token_loss * weights).sum().

    Computed once from the mask of the whole mini batch, so that micro batches and ranks only have to sum their
    parts. Sequences without a masked token do not count. `horizon` is the fixed length of
    seq-mean-token-sum-norm; by default the padded length.

    mask [[1, 1, 0], [1, 0, 0]], token-mean          -> [[1/3, 1/3, 0], [1/3, 0, 0]]
                                 seq-mean-token-mean -> [[1/4, 1/4, 0], [1/2, 0, 0]]
    """
    return LOSS_AGG_MODES[mode](mask.float(), horizon or mask.shape[-1])
