"""Attention of new tokens over the keys and values that a cache holds, one row for each session.

A registered name without a mask function gets no mask from the model, so no family needs code of its own; sliding
windows and soft caps arrive as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from ragen.errors import EngineError
from ragen.modeling.attention.masks import additive, hidden_keys, soft_cap
from ragen.modeling.attention.switch import attention_function

CACHED_ATTENTION = "ragen_rows"


@dataclass(kw_only=True, slots=True)
class Step:
    """Where the tokens of one forward pass stand in the cache."""

    rows: Tensor | None
    """[batch] Cache row of each batch entry; None means rows 0..batch-1 in order."""
    positions: Tensor
    """[batch, queries] Time index of each query token; padding points at the scratch column."""
    num_keys: int
    """Columns 0..num_keys-1 hold everything any query may see."""

    masks: dict[int | None, Tensor] = field(default_factory=dict)
    """Sliding window -> additive mask, [batch, 1, queries, keys], filled on demand."""


_current: ContextVar[Step] = ContextVar("cached_step")


@contextmanager
def cached_attention(config: Any, step: Step) -> Iterator[None]:
    """Within: models of this config attend to cached rows, whose keys and values their cache object returns."""
    token = _current.set(step)
    try:
        with attention_function(config, CACHED_ATTENTION):
            yield
    finally:
        _current.reset(token)


def attend_cached(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of new tokens [batch, head, queries, dim] over cached rows; returns [batch, queries, head, dim]."""
    step = _current.get()
    if kwargs.get("s_aux") is not None:
        raise EngineError("Models with attention sinks are not supported by the native engine; use rollout.name=vllm.")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mask = step.masks.get(sliding_window)
    if mask is None:
        mask = step.masks[sliding_window] = _mask(step, sliding_window, key)
    if query.shape[2] == 1 or softcap is not None:
        return _attend_plain(query, key, value, mask, scale, softcap), None
    is_grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=is_grouped)
    return out.transpose(1, 2), None


def _mask(step: Step, window: int | None, key: Tensor) -> Tensor:
    """[batch, 1, queries, keys] additive mask: 0 where a query may look, -inf elsewhere."""
    own = step.positions[:, :, None]
    is_hidden = hidden_keys(own, torch.arange(step.num_keys, device=key.device), window)
    # All is open to padding queries, whose scratch position is far to the right: they need something to look at.
    return additive(is_hidden & (own < step.num_keys), key.dtype)[:, None]


def _attend_plain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """Plain matrix products: for one query token faster than fused kernels on a CPU, and open to soft caps."""
    batch, num_heads, num_queries, head_dim = query.shape
    num_kv_heads = key.shape[1]
    share = num_heads // num_kv_heads
    query = query.reshape(batch, num_kv_heads, share * num_queries, head_dim)
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    scores = soft_cap(scores, softcap).view(batch, num_kv_heads, share, num_queries, -1) + mask[:, :, None]
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    out = torch.matmul(weights.view(batch, num_kv_heads, share * num_queries, -1), value)
    return out.view(batch, num_heads, num_queries, -1).transpose(1, 2)


AttentionInterface.register(CACHED_ATTENTION, attend_cached)
