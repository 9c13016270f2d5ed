"""What a query may look at, and how far a score may go: once for all attention functions."""

from __future__ import annotations

import torch
from torch import Tensor


def hidden_keys(queries: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """True where a query may not look, by positions that broadcast: at later keys, and beyond its sliding window.

    queries [[1], [2]], keys [0, 1, 2], window 2 -> [[False, False, True], [True, False, False]]
    """
    is_later = keys > queries
    return is_later if window is None else is_later | (keys <= queries - window)


def additive(is_hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0 where a query may look and -inf elsewhere."""
    return torch.zeros(is_hidden.shape, dtype=dtype, device=is_hidden.device).masked_fill_(is_hidden, float("-inf"))


def soft_cap(scores: Tensor, cap: float | None) -> Tensor:
    """Scores held between -cap and cap (Gemma 2); without a cap as they are."""
    return cap * torch.tanh(scores / cap) if cap else scores
