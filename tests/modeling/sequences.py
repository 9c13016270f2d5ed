"""Sequences with and without common beginnings, for the tests of packing and of packed attention."""

import torch

from ragen.modeling.packing import MIN_SHARED, Packing
from tests.engine.families import VOCAB

CPU = torch.device("cpu")
LENGTHS = (5, 1, 12, 9)


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in LENGTHS]


def tokens(count: int, seed: int) -> list[int]:
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def family_tree() -> list[list[int]]:
    """Two groups; within them longer and longer common beginnings, a twin, a beginning of another, and strangers."""
    prompt, other = tokens(20, seed=0), tokens(MIN_SHARED, seed=1)
    reply = prompt + tokens(6, seed=2)
    return [
        prompt + tokens(9, seed=3),
        other + tokens(4, seed=4),
        reply + tokens(5, seed=5),
        tokens(11, seed=6),
        reply + tokens(30, seed=7),
        reply + tokens(5, seed=5),
        other + tokens(2, seed=8),
        reply,
        [5],
        other[:-1] + tokens(3, seed=9),
    ]


def mask_of(sequences: list[list[int]]) -> torch.Tensor:
    """Sampled: the token after the shared prompt, which all its sequences draw from one hidden state, and others."""
    mask = torch.zeros(len(sequences), max(map(len, sequences)))
    for row, ids in enumerate(sequences):
        mask[row, 1 : len(ids) : 3] = 1
        mask[row, 20 : min(len(ids), 24)] = 1
    return mask


def sampled_rows(mask: torch.Tensor, packing: Packing) -> torch.Tensor:
    """Where the sampled tokens were drawn, for packings that were made without their mask, too."""
    return packing.to_padded[:, :-1][mask[:, 1:].bool()]


def sampled_targets(sequences: list[list[int]], mask: torch.Tensor) -> torch.Tensor:
    return torch.tensor([ids[i] for ids, row in zip(sequences, mask, strict=True) for i in row.nonzero()[:, 0]])
