"""Sequences of different lengths in one forward pass, without padding and without reading a common beginning twice.

Tokens of all sequences stand in one row of the model's input. Where a sequence begins like another one (the episodes
of a group share their first prompt, and often more) those tokens stand there once: the layers work token by token, and
what a token becomes depends on nothing but itself and what is before it. Only attention needs to know which tokens a
sequence consists of: it is registered under a name of its own and finds them in a module variable. On a GPU it is
variable-length flash attention; elsewhere the heads are laid out padded for the matrix products that need it, and
nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface

from ragen.modeling.attention.padded import Layout, attend_padded, lay_out
from ragen.modeling.attention.switch import attention_function
from ragen.modeling.fused_layers import fused_layers
from ragen.modeling.load import to_device

PACKED_ATTENTION = "ragen_packed"
MIN_SHARED = 16
"""Common beginnings of fewer tokens are not worth the indexing."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Where the sequences of a packed row are."""

    lengths: list[int]
    shared: list[int]
    """Leading tokens of each sequence that another one brought along; the rest are its own."""
    position_ids: Tensor
    """[1, tokens] Position of each token in its own sequence."""
    offsets: Tensor
    """[sequences + 1] int32 Start of each sequence's own tokens, and the end."""
    to_padded: Tensor
    """[sequences, longest] Index of each token in the row; padding points at token 0."""
    to_packed: Tensor
    """[tokens] Index of each token in the flattened padded form, in the sequence whose own it is."""
    wanted: Tensor | None
    """Index of the tokens whose hidden state is wanted, ascending; None: all."""
    rows: list[Tensor]
    """[sequences][length] Index of each token in the row, on the CPU."""

    @cached_property
    def all_asking(self) -> Layout:
        """For padded attention: every token asks, in the sequence whose own it is."""
        return lay_out(self.to_padded, self.to_packed)

    @cached_property
    def wanted_asking(self) -> Layout:
        """For the last layer: only tokens whose hidden state is wanted ask."""
        return lay_out(self.to_padded, self.to_packed[self.wanted])

    @cached_property
    def spans(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """For variable-length attention: ends of the queries and of the keys, and the index of each key.

        Sequences without tokens of their own ask nothing. Where nothing is shared the keys are the tokens as they are.
        """
        asking = [i for i, length in enumerate(self.lengths) if length > self.shared[i]]
        lengths = torch.tensor([self.lengths[i] for i in asking])
        own = lengths - torch.tensor([self.shared[i] for i in asking])
        device = self.offsets.device
        ends, key_ends = (to_device(torch.nn.functional.pad(n.cumsum(0), (1, 0)).int(), device) for n in (own, lengths))
        keys = to_device(torch.cat([self.rows[i] for i in asking]), device) if any(self.shared) else None
        return ends, key_ends, keys


def pack(
    sequences: Sequence[Sequence[int]], device: torch.device, *, mask: Tensor | None = None, share: bool = True
) -> tuple[Tensor, Packing]:
    """Token ids [1, tokens] of the sequences one after another, and where they are.

    With a `mask` [sequences, longest] of sampled tokens only the hidden states before those are wanted; what the
    model returns elsewhere means nothing.

    [[5, 6, 7], [8]] -> ids [[5, 6, 7, 8]], positions [[0, 1, 2, 0]]
    With `share` (and MIN_SHARED = 2) [[5, 6, 7], [5, 6, 9]] -> ids [[5, 6, 7, 9]], positions [[0, 1, 2, 2]]
    """
    lengths, shared = [len(sequence) for sequence in sequences], [0] * len(sequences)
    order = by_beginning(sequences)
    if share:
        for i, count in zip(order, shared_with_previous(sequences, order), strict=True):
            shared[i] = count
    own = torch.tensor(lengths) - torch.tensor(shared)
    ends = own.cumsum(0)
    rows: list[Tensor] = [torch.empty(0, dtype=torch.long)] * len(sequences)
    leader = rows[0]
    for i in order:
        rows[i] = leader = torch.cat([leader[: shared[i]], torch.arange(int(ends[i] - own[i]), int(ends[i]))])
    columns = torch.arange(max(lengths))
    is_own = (columns < torch.tensor(lengths)[:, None]) & (columns >= torch.tensor(shared)[:, None])
    to_padded = pad_sequence(rows, batch_first=True)
    wanted = torch.empty(0) if mask is None else to_padded[:, :-1][mask[:, 1:].bool()].unique()
    # Through NumPy: torch takes ten times as long for a list.
    ids = np.array([token for sequence, n in zip(sequences, shared, strict=True) for token in sequence[n:]], np.int64)
    return to_device(torch.from_numpy(ids), device)[None], Packing(
        lengths=lengths,
        shared=shared,
        position_ids=to_device(is_own.nonzero()[:, 1], device)[None],
        offsets=to_device(torch.tensor([0, *ends.tolist()], dtype=torch.int32), device),
        to_padded=to_device(to_padded, device),
        to_packed=to_device(is_own.flatten().nonzero()[:, 0], device),
        wanted=to_device(wanted, device) if len(wanted) else None,
        rows=rows,
    )


def by_beginning(sequences: Sequence[Sequence[int]]) -> list[int]:
    """Indices in the order of a dictionary: none of those before has more in common with a sequence than the last."""
    return sorted(range(len(sequences)), key=lambda i: list(sequences[i]))


def shared_with_previous(sequences: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Leading tokens that each sequence, in that order, can share with the one before it; 0 for the first."""
    return [0, *(num_shared(sequences[before], sequences[i]) for before, i in pairwise(order))][: len(order)]


def num_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading tokens that two sequences can share."""
    count = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return count if count >= MIN_SHARED else 0


# A plain variable, not a context variable: recomputed activations run on the threads of autograd.
_packing: Packing | None = None


@contextmanager
def packed_attention(model: Any, packing: Packing) -> Iterator[None]:
    """Within: the model's attention keeps the packed sequences apart. Backward passes belong inside, too."""
    global _packing
    outer, _packing = _packing, packing
    hooks: list[RemovableHandle] = []
    try:
        with attention_function(model.config, PACKED_ATTENTION) as before:
            # Adapters are switched off for the reference within a pass of the same model.
            is_inner = before == PACKED_ATTENTION
            hooks = [] if is_inner else _spare_last_mlp(model)
            with nullcontext() if is_inner else fused_layers(model, packing.offsets.device):
                yield
    finally:
        for hook in hooks:
            hook.remove()
        _packing = outer


def _spare_last_mlp(model: Any) -> list[RemovableHandle]:
    """After the attention of the last layer nothing looks at other tokens: its MLP need only see the wanted ones."""
    layers = getattr(model.base_model, "layers", None) or getattr(model.base_model, "h", None)
    mlp = getattr(layers[-1], "mlp", None) if layers else None
    if mlp is None:
        return []

    def take(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        assert _packing is not None
        return None if _packing.wanted is None else (inputs[0][:, _packing.wanted],)

    def put_back(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        assert _packing is not None
        return None if _packing.wanted is None else _put_back(output, _packing)

    return [mlp.register_forward_pre_hook(take), mlp.register_forward_hook(put_back)]


def _put_back(wanted: Tensor, packing: Packing) -> Tensor:
    """[1, wanted tokens, ...] -> [1, tokens, ...], zeros elsewhere."""
    assert packing.wanted is not None
    zeros = wanted.new_zeros(1, packing.position_ids.shape[1], *wanted.shape[2:])
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
    packing = _packing
    assert packing is not None, "packed attention outside of packed_attention()"
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and sliding_window is None and not softcap:
        return _attend_flash(query, key, value, packing, scaling), None
    is_last = packing.wanted is not None and module.layer_idx == module.config.num_hidden_layers - 1
    layout = packing.wanted_asking if is_last else packing.all_asking
    out = attend_padded(query, key, value, layout, scaling, dropout, sliding_window, softcap)
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
