"""Attention of packed sequences: each looks at its own tokens only, wherever they stand in the row.

On a GPU it is variable-length flash attention; elsewhere the heads are padded for the matrix products that need it,
and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface

from ragen.modeling.attention.padded import Masks, attend_padded
from ragen.modeling.attention.switch import attention_function
from ragen.modeling.fused_layers import fused_layers
from ragen.modeling.packing import Packing

PACKED_ATTENTION = "ragen_packed"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Current:
    """The pass that attention is called in."""

    packing: Packing
    masks: Masks


# A plain variable, not a context variable: recomputed activations run on the threads of autograd.
_current: _Current | None = None


def _now() -> _Current:
    assert _current is not None, "packed attention outside of packed_attention()"
    return _current


@contextmanager
def packed_attention(model: Any, packing: Packing) -> Iterator[None]:
    """Within: the model's attention keeps the packed sequences apart. Backward passes belong inside, too."""
    global _current
    outer, _current = _current, _Current(packing=packing, masks={})
    hooks: list[RemovableHandle] = []
    try:
        with attention_function(model.config, PACKED_ATTENTION) as before:
            # Adapters are switched off for the reference within a pass of the same model.
            is_inner = before == PACKED_ATTENTION
            hooks = [] if is_inner else _limit_last_mlp(model)
            with nullcontext() if is_inner else fused_layers(model, packing.ids.device):
                yield
    finally:
        for hook in hooks:
            hook.remove()
        _current = outer


def _limit_last_mlp(model: Any) -> list[RemovableHandle]:
    """After the attention of the last layer nothing looks at other tokens: its MLP need only see the wanted ones."""
    layers = getattr(model.base_model, "layers", None) or getattr(model.base_model, "h", None)
    mlp = getattr(layers[-1], "mlp", None) if layers else None
    if mlp is None:
        return []

    def take(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        wanted = _now().packing.wanted
        return None if wanted is None else (inputs[0][:, wanted],)

    def put_back(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        packing = _now().packing
        return None if packing.wanted is None else _put_back(output, packing)

    return [mlp.register_forward_pre_hook(take), mlp.register_forward_hook(put_back)]


def _put_back(wanted: Tensor, packing: Packing) -> Tensor:
    """[1, wanted tokens, ...] -> [1, tokens, ...], zeros elsewhere."""
    assert packing.wanted is not None
    zeros = wanted.new_zeros(1, packing.ids.shape[1], *wanted.shape[2:])
    return zeros.index_copy(1, packing.wanted, wanted)


def attend_packed(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence; [1, head, tokens, dim] -> [1, tokens, head, dim]."""
    current = _now()
    packing = current.packing
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and sliding_window is None and not softcap:
        return _attend_flash(query, key, value, packing, scaling), None
    is_last = packing.wanted is not None and module.layer_idx == module.config.num_hidden_layers - 1
    out = attend_padded(
        query,
        key,
        value,
        packing.wanted_queries if is_last else packing.all_queries,
        masks=current.masks,
        scaling=scaling,
        dropout=dropout,
        window=sliding_window,
        softcap=softcap,
    )
    return _put_back(out, packing) if is_last else out, None


def _attend_flash(query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    ends, key_ends, keys = packing.spans
    if (share := q.shape[1] // k.shape[1]) > 1:  # torch 2.11's kernel wants as many key heads as query heads
        k, v = (tensor[:, :, None].expand(-1, -1, share, -1) for tensor in (k, v))
    if keys is not None:
        k, v = k[keys], v[keys]
    k, v = (tensor.reshape(-1, *q.shape[1:]) for tensor in (k, v))
    most, longest = max(map(int.__sub__, packing.lengths, packing.shared)), max(packing.lengths)
    # Causal: a window without anything to the right. The last query and the last key of a sequence are the same token.
    out = varlen_attn(q, k, v, ends, key_ends, most, longest, scale=scaling, window_size=(-1, 0))
    return out[None]  # type: ignore[index]


AttentionInterface.register(PACKED_ATTENTION, attend_packed)
