"""Sequences of different lengths in one forward pass, without padding and without reading a common beginning twice.

Tokens of all sequences stand in one row of the model's input. Where a sequence begins like another one (the episodes
of a group share their first prompt, and often more) those tokens stand there once: the layers work token by token, and
what a token becomes depends on nothing but itself and what is before it. Only attention needs to know which tokens a
sequence consists of (attention/packed.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragen.modeling.attention.padded import Layout, layout_of
from ragen.modeling.load import to_device

MIN_SHARED = 16
"""Common beginnings of fewer tokens are not worth the indexing."""
MAX_CELLS = 2**20
"""Tokens, with padding, of the packings that a batch keeps: about 100 MB of indices."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Where the sequences of a packed row are."""

    lengths: list[int]
    shared: list[int]
    """Leading tokens of each sequence that another one brought along; the rest are its own."""
    ids: Tensor
    """[1, tokens] The sequences' own tokens, one sequence after another."""
    position_ids: Tensor
    """[1, tokens] Position of each token in its own sequence."""
    to_padded: Tensor
    """[sequences, longest] Index of each token in the row; padding points at token 0."""
    to_packed: Tensor
    """[tokens] Index of each token in the flattened padded form, in the sequence whose own it is."""
    sampled: Tensor
    """[sampled tokens] Index of the token before each sampled one, whose hidden state it was drawn from."""
    targets: Tensor
    """[sampled tokens] The sampled tokens, sequence by sequence."""
    wanted: Tensor | None
    """Index of the tokens whose hidden state is wanted, ascending; None: all."""
    rows: list[Tensor]
    """[sequences][length] Index of each token in the row, on the CPU."""

    @cached_property
    def all_queries(self) -> Layout:
        """For padded attention: every token is a query, in the sequence whose own it is."""
        return layout_of(self.to_padded, self.to_packed)

    @cached_property
    def wanted_queries(self) -> Layout:
        """For the last layer: only tokens whose hidden state is wanted are queries."""
        return layout_of(self.to_padded, self.to_packed[self.wanted])

    @cached_property
    def spans(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """For variable-length attention: ends of the queries and of the keys, and the index of each key.

        Sequences without tokens of their own have no queries. Where nothing is shared the keys are the tokens as they
        are.
        """
        chosen = [i for i, length in enumerate(self.lengths) if length > self.shared[i]]
        lengths = torch.tensor([self.lengths[i] for i in chosen])
        own = lengths - torch.tensor([self.shared[i] for i in chosen])
        device = self.ids.device
        ends, key_ends = (to_device(torch.nn.functional.pad(n.cumsum(0), (1, 0)).int(), device) for n in (own, lengths))
        keys = to_device(torch.cat([self.rows[i] for i in chosen]), device) if any(self.shared) else None
        return ends, key_ends, keys


def pack(
    sequences: Sequence[Sequence[int]], device: torch.device, *, mask: Tensor | None = None, share: bool = True
) -> Packing:
    """The sequences in one row.

    With a `mask` [sequences, longest] of sampled tokens only the hidden states before those are wanted; what the
    model returns elsewhere means nothing.

    [[5, 6, 7], [8]] -> ids [[5, 6, 7, 8]], positions [[0, 1, 2, 0]]
    With `share` (and MIN_SHARED = 2) [[5, 6, 7], [5, 6, 9]] -> ids [[5, 6, 7, 9]], positions [[0, 1, 2, 2]]
    """
    order = by_beginning(sequences)
    counts = shared_with_previous(sequences, order) if share else [0] * len(order)
    return pack_sharing(sequences, device, order=order, counts=counts, mask=mask)


def pack_apart(parts: Sequence[Sequence[Sequence[int]]], device: torch.device, *, mask: Tensor) -> Packing:
    """All sequences of all parts, one part after another; beginnings are shared inside of a part only."""
    order: list[int] = []
    counts: list[int] = []
    for part in parts:
        inner, start = by_beginning(part), len(order)
        counts += shared_with_previous(part, inner)
        order += [start + i for i in inner]
    sequences = [sequence for part in parts for sequence in part]
    return pack_sharing(sequences, device, order=order, counts=counts, mask=mask)


def pack_sharing(
    sequences: Sequence[Sequence[int]],
    device: torch.device,
    *,
    order: Sequence[int],
    counts: Sequence[int],
    mask: Tensor | None = None,
) -> Packing:
    """As `pack`, where it is known what is shared: `counts` tokens of each sequence in `order` with the one before."""
    lengths, shared = [len(sequence) for sequence in sequences], [0] * len(sequences)
    for i, count in zip(order, counts, strict=True):
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
    # Through NumPy: torch takes ten times as long for a list.
    own_ids = (token for sequence, count in zip(sequences, shared, strict=True) for token in sequence[count:])
    ids = torch.from_numpy(np.array(list(own_ids), np.int64))
    is_sampled = torch.zeros_like(to_padded[:, 1:], dtype=torch.bool) if mask is None else mask[:, 1:].bool()
    sampled = to_padded[:, :-1][is_sampled]
    return Packing(
        lengths=lengths,
        shared=shared,
        ids=to_device(ids, device)[None],
        position_ids=to_device(is_own.nonzero()[:, 1], device)[None],
        to_padded=to_device(to_padded, device),
        to_packed=to_device(is_own.flatten().nonzero()[:, 0], device),
        sampled=to_device(sampled, device),
        targets=to_device(ids[to_padded[:, 1:][is_sampled]], device),
        wanted=to_device(sampled.unique(), device) if len(sampled) else None,
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
    count = num_equal(a, b)
    return count if count >= MIN_SHARED else 0


def num_equal(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading tokens that are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def micro_batches(
    sequences: Sequence[Sequence[int]], *, max_samples: float = math.inf, max_tokens: float = math.inf
) -> list[list[int]]:
    """Indices in groups of at most `max_samples` sequences or `max_tokens` tokens, common beginnings together.

    A beginning that a sequence shares with the one before it in its group is computed, and counted, once.

    [5, 6], [1], [5, 7], [2], max_samples=2 -> [[1, 3], [0, 2]]
    """
    order = by_beginning(sequences)
    opening = [(1, len(sequences[i])) for i in order]
    shared = shared_with_previous(sequences, order)
    following = [(1, size - count) for (_, size), count in zip(opening, shared, strict=True)]
    return _split(order, opening, following, (max_samples, max_tokens))


def within_bounds(
    sequences: Sequence[Sequence[int]], costs: Sequence[Sequence[int]], bounds: Sequence[int]
) -> list[list[int]]:
    """Indices in groups whose costs add up to no more than the bounds, common beginnings together.

    Every sequence has as many costs as there are bounds. One that exceeds them by itself is a group of its own.

    [5, 6], [1], [5, 7], costs [2, 1], [1, 1], [2, 1], bounds [4, 2] -> [[1, 0], [2]]
    """
    order = by_beginning(sequences)
    in_order = [costs[i] for i in order]
    return _split(order, in_order, in_order, bounds)


def neighbours(costs: Sequence[Sequence[float]], bounds: Sequence[float]) -> list[list[int]]:
    """Indices in groups of neighbours whose costs add up to no more than the bounds.

    costs [2], [1], [2], bounds [3] -> [[0, 1], [2]]
    """
    return _split(range(len(costs)), costs, costs, bounds)


def by_length(lengths: Sequence[int], *, max_samples: int, max_tokens: int) -> list[list[int]]:
    """Indices in groups of at most `max_samples` sequences and `max_tokens` tokens, similar lengths together.

    lengths [5, 1, 4, 2], max_samples=2, max_tokens=8 -> [[1, 3], [2], [0]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    costs = [(1, lengths[i]) for i in order]
    return _split(order, costs, costs, (max_samples, max_tokens))


Costs = Sequence[Sequence[float]]


def _split(order: Sequence[int], opening: Costs, following: Costs, bounds: Sequence[float]) -> list[list[int]]:
    """Neighbours together, as many as the bounds allow: the first of a group costs `opening`, others `following`."""
    found: list[list[int]] = []
    totals: list[float] = []
    for i, first, further in zip(order, opening, following, strict=True):
        totals = [total + cost for total, cost in zip(totals, further)]
        if not found or any(total > bound for total, bound in zip(totals, bounds, strict=True)):
            found.append([])
            totals = list(first)
        found[-1].append(i)
    return found


class Packings:
    """Packings of a batch's samples: passes over the same ones need not pack them again.

    Whoever holds the batch holds them. Other processes pack for themselves.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Packing] = {}
        self._num_cells = 0

    def pack(self, sequences: Sequence[Sequence[int]], device: torch.device, *, mask: Tensor) -> Packing:
        """As `pack` does it; kept while all that is kept has no more than MAX_CELLS tokens, padding included."""
        key = (tuple(map(tuple, sequences)), mask.bool().numpy().tobytes(), device)
        if (found := self._found.get(key)) is not None:
            return found
        packing = pack(sequences, device, mask=mask)
        if self._num_cells + mask.numel() <= MAX_CELLS:
            self._found[key] = packing
            self._num_cells += mask.numel()
        return packing

    def __reduce__(self) -> tuple[type[Packings], tuple[()]]:
        return Packings, ()
