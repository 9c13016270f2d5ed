"""Keys and values of many sessions, one row each.

Layout per layer: [row, head, time, dim]. Rows 0..n-1 are live, so a decode step reads a view, not a copy. Hugging
Face models reach it through two doors they offer to everyone: the cache object they call `update` on, and an
attention function registered by name (modeling/attention/cached.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ragen.modeling.attention.cached import CACHED

TIME_BLOCK = 128


class RowCache:
    """The key-value store behind a native engine. The last column is scratch for padding tokens."""

    def __init__(self, *, device: torch.device, dtype: torch.dtype, max_rows: int, max_len: int) -> None:
        self.device, self.dtype = device, dtype
        self.max_rows, self.max_len = max_rows, max_len
        self.num_rows, self.num_columns = 0, 0
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

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
        step = CACHED.state
        if layer_idx not in self.keys:
            self.keys[layer_idx] = self._empty(keys.shape[1], keys.shape[3])
            self.values[layer_idx] = self._empty(values.shape[1], values.shape[3])
        batch = keys.shape[0]
        rows = torch.arange(batch, device=self.device) if step.rows is None else step.rows
        stores = self.keys[layer_idx], self.values[layer_idx]
        for store, new in zip(stores, (keys, values), strict=True):
            store[rows[:, None], :, step.positions] = new.transpose(1, 2).to(self.dtype)
        read = slice(batch) if step.rows is None else step.rows  # a slice is a view, not a copy
        return tuple(store[read, :, : step.num_keys] for store in stores)  # type: ignore[return-value]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Models ask for this only to number positions, which we always pass ourselves."""
        return 0
