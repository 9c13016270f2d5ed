"""The log-prob of every continuation after every prompt.

Scoring 64 continuations after each of 64 prompts as whole sequences would read every prompt 64 times. Here every pair
is a sequence of a packed row (modeling/packing.py), in which a beginning that sequences have in common stands once: the
prompt, and what continuations, or prompts, share. A pass takes as many prompts as its tokens allow, so that a GPU is
kept busy by a few large passes, and nothing is fetched before the last one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from ragen.learners.actor import sampled_hidden, sampled_logprobs
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.packing import Packing, by_beginning, by_length, num_equal, num_shared, pack_sharing, within_bounds
from ragen.modeling.team import SOLO

MAX_TOKENS = 16384
"""Tokens of one pass, unless one prompt and its continuations have more; bounds its memory when thoughts are long."""
MAX_KEYS = 2**18
"""Tokens of all pairs of a pass, unless a single pair has more: attention gathers the keys of each, those of a prompt
once for every continuation. About 1 GB in a layer of a model of 0.5B, 2 GB for 3B."""

Ids = tuple[int, ...]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Continuations, by index, that are scored after some prompts in one pass."""

    rows: list[int]
    columns: list[int]


@torch.no_grad()
def cross_logprobs(
    model: Any, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], *, micro_batch_size: int
) -> tuple[Tensor, Tensor]:
    """Sums of token log-probs [continuations, prompts] at temperature 1, and lengths [continuations], on the CPU.

    A pass scores at most `micro_batch_size` continuations after each of its prompts. Equal prompts and equal
    continuations are scored once. The model is left as it was.
    """
    assert all(map(len, prompts)) and all(map(len, continuations)), "nothing can be scored without tokens"
    rows, row_of = distinct([tuple(ids) for ids in continuations])
    columns, column_of = distinct([tuple(ids) for ids in prompts])
    device = SOLO.device_of(model)
    found: list[tuple[Block, Tensor]] = []
    with _evaluating(model):
        for block in blocks(rows, columns, micro_batch_size=micro_batch_size):
            packing = pack_pairs([rows[i] for i in block.rows], [columns[j] for j in block.columns], device)
            with packed_attention(model, packing):
                hidden = sampled_hidden(model, packing)
                logprobs, _ = sampled_logprobs(model, hidden, packing.targets, temperature=1.0)
            found.append((block, logprobs))
    sums = torch.zeros(len(rows), len(columns), dtype=torch.float64)
    # Fetched only now: the CPU prepares a pass while the GPU is at work on the one before.
    for block, logprobs in found:
        lengths = [len(rows[i]) for i in block.rows] * len(block.columns)
        totals = torch.segment_reduce(logprobs.cpu().double(), "sum", lengths=torch.tensor(lengths))
        index = torch.tensor(block.rows)[:, None], torch.tensor(block.columns)
        sums[index] = totals.view(len(block.columns), len(block.rows)).T
    return sums[row_of][:, column_of], torch.tensor(list(map(len, continuations)))


def blocks(rows: Sequence[Ids], columns: Sequence[Ids], *, micro_batch_size: int) -> Iterator[Block]:
    """Every pair once, as many prompts in a block as tokens and keys allow; those that begin alike are neighbours."""
    for part in by_length(list(map(len, rows)), max_samples=micro_batch_size, max_tokens=MAX_TOKENS):
        num_tokens = sum(len(rows[i]) for i in part)
        costs = [(num_tokens + len(prompt), num_tokens + len(part) * len(prompt)) for prompt in columns]
        for group in within_bounds(columns, costs, (MAX_TOKENS, MAX_KEYS)):
            size = len(part)
            if costs[group[0]][1] > MAX_KEYS:  # a prompt by itself: not all continuations fit behind it
                size = max(1, MAX_KEYS // (len(columns[group[0]]) + max(len(rows[i]) for i in part)))
            for start in range(0, len(part), size):
                yield Block(rows=part[start : start + size], columns=group)


def pack_pairs(rows: Sequence[Ids], columns: Sequence[Ids], device: torch.device) -> Packing:
    """Each prompt of `columns` with each continuation of `rows` behind it, prompt by prompt; only rows are scored.

    What continuations share is found once for all prompts.
    """
    inner = by_beginning(rows)
    common = [num_equal(rows[a], rows[b]) for a, b in pairwise(inner)]
    order: list[int] = []
    counts: list[int] = []
    for number, prompt in enumerate(columns):
        order += [number * len(rows) + i for i in inner]
        counts += [num_shared(columns[number - 1], prompt) if number else 0, *(len(prompt) + count for count in common)]
    sequences = [prompt + row for prompt in columns for row in rows]
    starts = torch.tensor([len(prompt) for prompt in columns for _ in rows])
    ends = torch.tensor([len(sequence) for sequence in sequences])
    position = torch.arange(int(ends.max()))
    mask = (position >= starts[:, None]) & (position < ends[:, None])
    return pack_sharing(sequences, device, order=order, counts=counts, mask=mask)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Within: evaluation mode; every module gets its own mode back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def distinct(items: Sequence[T]) -> tuple[list[T], list[int]]:
    """The different items in order of appearance, and the index of each item among them.

    a b a -> [a, b], [0, 1, 0]
    """
    indices = {item: index for index, item in enumerate(dict.fromkeys(items))}
    return list(indices), [indices[item] for item in items]
