"""Passes of a model over sequences: some go together, packed on the model's device, while its attention is switched.

Scoring, updating and supervised training go through `passes`, and gradient analysis where it takes one group at a
time. Several groups at once (learners/gradients.py) and cross scoring (learners/cross_scoring.py) lay their rows out
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.packing import Packing, Packings, pack
from ragen.modeling.team import SOLO, Split, Team


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Sequences that go through a model together."""

    indices: list[int]
    """Which of all sequences they are."""
    packing: Packing
    mask: Tensor | None
    """[sequences, longest] Their sampled tokens, on the CPU."""
    is_spare: bool
    """Nothing of it counts: other ranks have more to do, and a sharded model needs all of them in every pass."""


def passes(
    model: Any,
    sequences: Sequence[Sequence[int]],
    split: Split,
    *,
    mask: Tensor | None = None,
    packings: Packings | None = None,
    team: Team = SOLO,
) -> Iterator[Pass]:
    """This process's passes; between one and the next the model's attention is switched, so backward belongs there.

    With a `mask` [sequences, longest] of sampled tokens only those are wanted, beginnings that sequences have in
    common are read once, and `packings` remembers what was packed.
    """
    device = team.device_of(model)
    for share in team.shares(sequences, split):
        chosen = [sequences[i] for i in share.indices]
        own_mask = None if mask is None else mask[torch.tensor(share.indices), : max(map(len, chosen))]
        if own_mask is None:
            packing = pack(chosen, device, share=False)
        else:
            packing = (packings or Packings()).pack(chosen, device, mask=own_mask)
        with packed_attention(model, packing):
            yield Pass(indices=share.indices, packing=packing, mask=own_mask, is_spare=share.is_spare)
