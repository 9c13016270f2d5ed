"""Keys and values of many sessions, one row each, and the attention that reads them.

Layout per layer: [row, head, time, dim]. Rows 0..n-1 are live, so a decode step reads a view, not a copy. Hugging
Face models reach it through two doors they offer to everyone: the cache object they call `update` on, and an
attention function registered by name. A registered name without a mask function gets no mask from the model, so
no family needs code of its own; sliding windows and soft caps arrive as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from ragen.errors import EngineError
from ragen.modeling.attention.switch import attention_function

ATTENTION = "ragen_rows"
TIME_BLOCK = 128


@dataclass(kw_only=True, slots=True)
class Step:
    """Where the tokens of one forward pass stand in the cache."""

    rows: Tensor | None
    """[batch] Cache row of each batch entry; None means rows 0..batch-1 in order."""
    positions: Tensor
    """[batch, queries] Time index of each query token; padding points at the scratch column."""
    num_keys: int
    """Columns 0..num_keys-1 hold everything any query may see."""

    masks: dict[int | None, Tensor]
    """Sliding window -> additive mask (decode) or boolean mask (prefill), filled on demand."""


class RowCache:
    """The key-value store behind a native engine. The last column is scratch for padding tokens."""

    def __init__(self, *, device: torch.device, dtype: torch.dtype, max_rows: int, max_len: int) -> None:
        self.device, self.dtype = device, dtype
        self.max_rows, self.max_len = max_rows, max_len
        self.num_rows, self.num_columns = 0, 0
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.step: Step | None = None

    @property
    def scratch(self) -> int:
        return self.num_columns - 1

    @torch.inference_mode()
    def reserve(self, num_rows: int, num_columns: int) -> None:
        """Make room for that many rows and tokens a row; grows in steps so that copies are rare."""
        rows, columns = self.num_rows, self.num_columns
        if num_rows > rows:
            rows = min(self.max_rows, max(num_rows, 2 * rows))
        if num_columns + 1 > columns:
            blocks = -(-(num_columns + 1) // TIME_BLOCK)
            columns = max(blocks * TIME_BLOCK, min(self.max_len + 1, columns * 3 // 2))
        if (rows, columns) == (self.num_rows, self.num_columns):
            return
        self.num_rows, self.num_columns = rows, columns
        for store in (self.keys, self.values):
            for layer, old in list(store.items()):
                new = self._empty(old.shape[1], old.shape[3])
                new[: old.shape[0], :, : old.shape[2] - 1] = old[:, :, :-1]
                store[layer] = new

    def _empty(self, num_heads: int, head_dim: int) -> Tensor:
        # Zeros, not empty: a NaN in a masked column would survive the multiplication by zero.
        shape = (self.num_rows, num_heads, self.num_columns, head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def copy_row(self, source: int, targets: list[int], length: int) -> None:
        """Rows `targets` get the first `length` columns of row `source`."""
        index = torch.tensor(targets, device=self.device)
        for store in (*self.keys.values(), *self.values.values()):
            store[index, :, :length] = store[source, :, :length]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store the new tokens; called by the model's attention layers. [batch, head, queries, dim]"""
        step = self.step
        assert step is not None, "forward pass outside of a cache step"
        if layer_idx not in self.keys:
            self.keys[layer_idx] = self._empty(keys.shape[1], keys.shape[3])
            self.values[layer_idx] = self._empty(values.shape[1], values.shape[3])
        batch = keys.shape[0]
        rows = torch.arange(batch, device=self.device) if step.rows is None else step.rows
        stores = self.keys[layer_idx], self.values[layer_idx]
        for store, new in zip(stores, (keys, values), strict=True):
            store[rows[:, None], :, step.positions] = new.transpose(1, 2).to(self.dtype)
        if step.rows is None:
            return tuple(store[:batch, :, : step.num_keys] for store in stores)  # type: ignore[return-value]
        return tuple(store[step.rows, :, : step.num_keys] for store in stores)  # type: ignore[return-value]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Models ask for this only to number positions, which we always pass ourselves."""
        return 0

    @contextmanager
    def serving(self, config: Any, step: Step) -> Iterator[None]:
        """Within: the model's attention reads this cache."""
        token, self.step = _active.set(self), step
        try:
            with attention_function(config, ATTENTION):
                yield
        finally:
            self.step = None
            _active.reset(token)


_active: ContextVar[RowCache] = ContextVar("active_row_cache")


def attend(
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
    step = _active.get().step
    assert step is not None
    if kwargs.get("s_aux") is not None:
        raise EngineError("Models with attention sinks are not supported by the native engine; use rollout.name=vllm.")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mask = step.masks.get(sliding_window)
    if mask is None:
        mask = step.masks[sliding_window] = _visible(step, sliding_window, key)
    if query.shape[2] == 1 or softcap is not None:
        return _attend_plain(query, key, value, mask, scale, softcap), None
    is_grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=is_grouped)
    return out.transpose(1, 2), None


def _visible(step: Step, window: int | None, key: Tensor) -> Tensor:
    """[batch, 1, queries, keys] additive mask: 0 where a query may look, -inf elsewhere."""
    column = torch.arange(step.num_keys, device=key.device)
    own = step.positions[:, :, None]
    allowed = column <= own
    if window is not None:
        # Column 0 stays open for padding queries, whose scratch position is far to the right.
        allowed &= (column > own - window) | (own >= step.num_keys)
    mask = torch.zeros(allowed.shape, dtype=key.dtype, device=key.device)
    return mask.masked_fill_(~allowed, float("-inf"))[:, None]


def _attend_plain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """Plain matrix products: for one query token faster than fused kernels on a CPU, and open to soft caps."""
    batch, num_heads, num_queries, head_dim = query.shape
    num_kv_heads = key.shape[1]
    share = num_heads // num_kv_heads
    query = query.reshape(batch, num_kv_heads, share * num_queries, head_dim)
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.view(batch, num_kv_heads, share, num_queries, -1) + mask[:, :, None]
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    out = torch.matmul(weights.view(batch, num_kv_heads, share * num_queries, -1), value)
    return out.view(batch, num_heads, num_queries, -1).transpose(1, 2)


AttentionInterface.register(ATTENTION, attend)
