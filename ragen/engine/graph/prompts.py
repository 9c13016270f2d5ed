"""Which prompt tokens go through the model together, and how a pass is told about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen.engine.sessions import Group


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens start..stop-1 of what is new in prompt `index`."""

    index: int
    start: int
    stop: int

    def padded(self, block: int) -> int:
        """Its length as a multiple of `block`."""
        return -(-(self.stop - self.start) // block) * block


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptBatch:
    """New prompt tokens of several sessions; each session's are padded to whole blocks."""

    ids: np.ndarray
    """[tokens]"""
    blocks: np.ndarray
    """[tokens / block, 3] Slot, first position and number of tokens of each block."""
    samples: np.ndarray
    """[samples, 2] Slot that draws a token, and the index of the prompt token it draws after."""


def plan(lengths: Sequence[int], budget: int, *, block: int) -> list[list[Piece]]:
    """Passes of at most `budget` tokens, pieces padded to whole blocks; the next takes what does not fit of a prompt.

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


def prompt_batch(pieces: Sequence[Piece], groups: Sequence[Group], *, block: int) -> PromptBatch:
    """One pass over pieces of the leaders' prompts; where one is complete, every member of its group draws."""
    num_tokens = sum(piece.padded(block) for piece in pieces)
    ids = np.zeros(num_tokens, dtype=np.int64)
    blocks = np.zeros((num_tokens // block, 3), dtype=np.int64)
    samples: list[tuple[int, int]] = []
    row = 0
    for piece in pieces:
        leader = groups[piece.index].leader
        start, stop = len(leader.cached) + piece.start, len(leader.cached) + piece.stop
        ids[row : row + stop - start] = leader.request.prompt_ids[start:stop]
        positions = np.arange(start, stop, block)
        own = blocks[row // block : row // block + len(positions)]
        own[:, 0], own[:, 1], own[:, 2] = leader.slot, positions, np.minimum(block, stop - positions)
        if piece.stop == leader.num_new:
            samples += [(member.slot, row + stop - start - 1) for member in groups[piece.index].members]
        row += piece.padded(block)
    return PromptBatch(ids=ids, blocks=blocks, samples=np.array(samples, dtype=np.int64).reshape(-1, 2))
