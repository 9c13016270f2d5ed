"""Attention of new tokens over the keys and values that a cache holds, one row for each session.

Tested in tests/engine/test_native_engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ragen.modeling.attention.masks import additive, hidden_keys, soft_cap
from ragen.modeling.attention.switch import Attention, Heads


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


def attend_cached(heads: Heads, step: Step) -> Tensor:
    """Attention of new tokens over cached rows, whose keys and values the model's cache object returned."""
    if heads.window not in step.masks:
        step.masks[heads.window] = _mask(step, heads.window, heads.key)
    mask = step.masks[heads.window]
    if heads.query.shape[2] == 1 or heads.softcap is not None:
        return _attend_plain(heads, mask)
    out = scaled_dot_product_attention(
        heads.query, heads.key, heads.value, attn_mask=mask, scale=heads.scaling, enable_gqa=heads.is_grouped
    )
    return out.transpose(1, 2)


def _mask(step: Step, window: int | None, key: Tensor) -> Tensor:
    """[batch, 1, queries, keys] additive mask: 0 where a query may look, -inf elsewhere."""
    own = step.positions[:, :, None]
    is_hidden = hidden_keys(own, torch.arange(step.num_keys, device=key.device), window)
    # All is open to padding queries, whose scratch position is far to the right: they need something to look at.
    return additive(is_hidden & (own < step.num_keys), key.dtype)[:, None]


def _attend_plain(heads: Heads, mask: Tensor) -> Tensor:
    """Plain matrix products: for one query token faster than fused kernels on a CPU, and open to soft caps."""
    batch, num_heads, num_queries, head_dim = heads.query.shape
    num_kv_heads = heads.key.shape[1]
    share = num_heads // num_kv_heads
    query = heads.query.reshape(batch, num_kv_heads, share * num_queries, head_dim)
    scores = soft_cap(torch.matmul(query * heads.scaling, heads.key.transpose(2, 3)), heads.softcap)
    scores = scores.view(batch, num_kv_heads, share, num_queries, -1) + mask[:, :, None]
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(heads.value.dtype)
    out = torch.matmul(weights.view(batch, num_kv_heads, share * num_queries, -1), heads.value)
    return out.view(batch, num_heads, num_queries, -1).transpose(1, 2)


CACHED = Attention("ragen_rows", attend_cached)
