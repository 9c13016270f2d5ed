"""Attention of packed sequences: each looks at its own tokens only, wherever they stand in the row.

On a GPU it is variable-length flash attention; elsewhere the heads are padded for the matrix products that need it,
and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ragen.modeling.attention.padded import Masks, attend_padded
from ragen.modeling.attention.switch import Attention, Heads
from ragen.modeling.fused_layers import fused_layers
from ragen.modeling.packing import Packing

MAX_FLASH_SIZE = 256
"""Largest heads of flash attention; sizes must be multiples of 8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The row of a pass."""

    packing: Packing
    masks: Masks = field(default_factory=dict)


@contextmanager
def packed_attention(model: Any, packing: Packing) -> Iterator[None]:
    """Within: the model's attention keeps the packed sequences apart. Backward passes belong inside, too."""
    with PACKED.serving(model.config, Row(packing=packing)) as before:
        if before == PACKED.name:  # adapters are switched off for the reference within a pass of the same model
            yield
            return
        hooks = _limit_last_mlp(model)
        try:
            with fused_layers(model, packing.ids.device):
                yield
        finally:
            for hook in hooks:
                hook.remove()


def _limit_last_mlp(model: Any) -> list[RemovableHandle]:
    """After the attention of the last layer nothing looks at other tokens: its MLP need only see the wanted ones."""
    layers = getattr(model.base_model, "layers", None) or getattr(model.base_model, "h", None)
    mlp = getattr(layers[-1], "mlp", None) if layers else None
    if mlp is None:
        return []

    def take(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        wanted = PACKED.state.packing.wanted
        return None if wanted is None else (inputs[0][:, wanted],)

    def put_back(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        packing = PACKED.state.packing
        return None if packing.wanted is None else _put_back(output, packing)

    return [mlp.register_forward_pre_hook(take), mlp.register_forward_hook(put_back)]


def _put_back(wanted: Tensor, packing: Packing) -> Tensor:
    """[1, wanted tokens, ...] -> [1, tokens, ...], zeros elsewhere."""
    assert packing.wanted is not None
    zeros = wanted.new_zeros(1, packing.ids.shape[1], *wanted.shape[2:])
    return zeros.index_copy(1, packing.wanted, wanted)


def attend_packed(heads: Heads, row: Row) -> Tensor:
    """Causal attention inside each sequence."""
    packing = row.packing
    if heads.query.is_cuda and heads.query.dtype in (torch.bfloat16, torch.float16) and _has_flash(heads):
        return _attend_flash(heads, packing)
    if packing.wanted is None or not heads.is_last:
        return attend_padded(heads, packing.all_queries, row.masks)
    return _put_back(attend_padded(heads, packing.wanted_queries, row.masks), packing)


def _has_flash(heads: Heads) -> bool:
    """Whether flash attention computes such heads: DeepSeek's values are of another size, some of Gemma 4 have 512."""
    size = heads.query.shape[-1]
    is_plain = heads.window is None and not heads.softcap
    return is_plain and heads.value.shape[-1] == size and size <= MAX_FLASH_SIZE and size % 8 == 0


def _attend_flash(heads: Heads, packing: Packing) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (tensor[0].transpose(0, 1) for tensor in (heads.query, heads.key, heads.value))
    ends, key_ends, keys = packing.spans
    if keys is not None:  # both at once, and before heads are repeated: the backward pass sorts and adds what was taken
        k, v = torch.cat([k, v], dim=1)[keys].chunk(2, dim=1)
    if (share := q.shape[1] // k.shape[1]) > 1:  # torch 2.11's kernel wants as many key heads as query heads
        k, v = (tensor[:, :, None].expand(-1, -1, share, -1) for tensor in (k, v))
    k, v = (tensor.reshape(-1, *q.shape[1:]) for tensor in (k, v))
    most, longest = max(map(int.__sub__, packing.lengths, packing.shared)), max(packing.lengths)
    # Causal: a window without anything to the right. The last query and the last key of a sequence are the same token.
    out = varlen_attn(q, k, v, ends, key_ends, most, longest, scale=heads.scaling, window_size=(-1, 0))
    return out[None]  # type: ignore[index]


PACKED = Attention("ragen_packed", attend_packed)
