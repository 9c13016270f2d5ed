"""Sequences of different lengths in one forward pass, without padding.

Tokens of all sequences stand in one row. Only attention needs to know where one sequence ends: it is registered
under a name of its own and finds the boundaries in a module variable. On a GPU it is variable-length flash
attention; elsewhere the heads are laid out padded for the one matrix product that needs it, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED_ATTENTION = "ragen_packed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Where the sequences of a packed row are."""

    lengths: list[int]
    position_ids: Tensor
    """[1, tokens] Position of each token in its own sequence."""
    offsets: Tensor
    """[sequences + 1] int32 Start of each sequence, and the end."""
    to_padded: Tensor
    """[sequences, longest] Index of each token in the row; padding points at token 0."""
    to_packed: Tensor
    """[tokens] Index of each token in the flattened padded form."""

    @property
    def longest(self) -> int:
        return max(self.lengths)


def pack(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Packing]:
    """Token ids [1, tokens] of the sequences one after another, and where they are.

    [[5, 6, 7], [8]] -> ids [[5, 6, 7, 8]], positions [[0, 1, 2, 0]]
    """
    lengths = [len(sequence) for sequence in sequences]
    ids = torch.tensor([token for sequence in sequences for token in sequence], device=device)[None]
    size = torch.tensor(lengths)
    starts = size.cumsum(0) - size
    column = torch.arange(max(lengths))
    is_token = column < size[:, None]
    to_padded = torch.where(is_token, starts[:, None] + column, 0)
    positions = torch.cat([torch.arange(length) for length in lengths])
    return ids, Packing(
        lengths=lengths,
        position_ids=positions[None].to(device),
        offsets=torch.tensor([0, *size.cumsum(0).tolist()], dtype=torch.int32, device=device),
        to_padded=to_padded.to(device),
        to_packed=is_token.flatten().nonzero()[:, 0].to(device),
    )


# A plain variable, not a context variable: recomputed activations run on the threads of autograd.
_packing: Packing | None = None


@contextmanager
def packed_attention(model: Any, packing: Packing) -> Iterator[None]:
    """Within: the model's attention keeps the packed sequences apart. Backward passes belong inside, too."""
    global _packing
    config = model.config
    before, config._attn_implementation_internal = config._attn_implementation_internal, PACKED_ATTENTION
    outer, _packing = _packing, packing
    try:
        yield
    finally:
        config._attn_implementation_internal, _packing = before, outer


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
    packing = _packing
    assert packing is not None, "packed attention outside of packed_attention()"
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and sliding_window is None and not softcap:
        return _attend_flash(query, key, value, packing, scaling), None
    q, k, v = (_pad(tensor, packing) for tensor in (query, key, value))
    mask = _window_mask(packing, sliding_window, query.device)
    if softcap:
        out = _attend_capped(q, k, v, mask, scaling or q.shape[-1] ** -0.5, softcap)
    else:
        is_grouped = q.shape[1] != k.shape[1]
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, dropout_p=dropout, enable_gqa=is_grouped
        )
    return out.transpose(1, 2).flatten(0, 1)[packing.to_packed][None], None


def _pad(tensor: Tensor, packing: Packing) -> Tensor:
    """[1, head, tokens, dim] -> [sequences, head, longest, dim]; padding repeats token 0, which causality hides."""
    return tensor[0].transpose(0, 1)[packing.to_padded].transpose(1, 2)


def _window_mask(packing: Packing, window: int | None, device: torch.device) -> Tensor | None:
    if window is None or packing.longest <= window:
        return None
    place = torch.arange(packing.longest, device=device)
    return (place <= place[:, None]) & (place > place[:, None] - window)


def _attend_capped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, softcap: float) -> Tensor:
    """Plain attention with a soft cap on the scores (Gemma 2)."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    if mask is None:
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    scores = softcap * torch.tanh(q @ k.transpose(2, 3) * scale / softcap)
    return scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def _attend_flash(query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if (share := q.shape[1] // k.shape[1]) > 1:  # torch 2.11's kernel wants as many key heads as query heads
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    ends, longest = packing.offsets, packing.longest
    out = varlen_attn(q, k, v, ends, ends, longest, longest, scale=scaling, window_size=(-1, 0))  # causal
    return out[None]  # type: ignore[index]


AttentionInterface.register(PACKED_ATTENTION, attend_packed)
