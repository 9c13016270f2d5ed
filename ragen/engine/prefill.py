"""Which prompt tokens go through the model together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens start..stop-1 of prompt `index`."""

    index: int
    start: int
    stop: int

    def padded(self, block: int) -> int:
        """Its length as a multiple of `block`."""
        return -(-(self.stop - self.start) // block) * block


def plan(lengths: Sequence[int], budget: int, *, block: int) -> list[list[Piece]]:
    """Passes of at most `budget` tokens, pieces padded to whole blocks; a prompt that does not fit goes on in the next.

    lengths [20, 50], budget 64, block 16 -> [[0: 0..20, 1: 0..32], [1: 32..50]]
    """
    passes: list[list[Piece]] = []
    room = 0
    for index, length in enumerate(lengths):
        start = 0
        while start < length:
            if room < block:
                passes.append([])
                room = budget // block * block
            piece = Piece(index, start, min(length, start + room))
            passes[-1].append(piece)
            room -= piece.padded(block)
            start = piece.stop
    return passes


def common_prefix(cached: list[int], prompt: list[int]) -> int:
    """Length of the common prefix of two token lists."""
    length = min(len(cached), len(prompt))
    if cached[:length] == prompt[:length]:
        return length
    same = np.array(cached[:length]) == np.array(prompt[:length])
    return int(same.argmin())
