"""The log-prob of every continuation after every prompt.

Scoring 64 continuations after each of 64 prompts as whole sequences would read every prompt 64 times. Here one pass
reads a prompt once and all continuations after it, in one row without padding: each continuation sees the prompt and
itself (modeling/attention/shared_prompt.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from ragen.algorithms.entropy import CHUNK_SIZE, logprobs_from_logits
from ragen.modeling.attention.shared_prompt import set_prompt, shared_prompt_attention
from ragen.modeling.model import logits_of
from ragen.modeling.packing import Packing, by_length
from ragen.modeling.passes import passes

MAX_TOKENS = 16384
"""Continuation tokens of one pass; bounds its memory when thoughts are long."""

T = TypeVar("T", bound=Hashable)


@torch.no_grad()
def cross_logprobs(
    model: Any, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], *, micro_batch_size: int
) -> tuple[Tensor, Tensor]:
    """Sums of token log-probs [continuations, prompts] at temperature 1, and lengths [continuations], on the CPU.

    A pass scores at most `micro_batch_size` continuations. Equal prompts and equal continuations are scored once.
    The model is left as it was.
    """
    assert all(map(len, prompts)) and all(map(len, continuations)), "nothing can be scored without tokens"
    rows, row_of = distinct([tuple(ids) for ids in continuations])
    columns, column_of = distinct([tuple(ids) for ids in prompts])
    sums = torch.zeros(len(rows), len(columns), dtype=torch.float64)

    def split(_: Sequence[Sequence[int]]) -> list[list[int]]:
        return by_length(list(map(len, rows)), max_samples=micro_batch_size, max_tokens=MAX_TOKENS)

    with _evaluating(model):
        # Nothing follows the last tokens, so the model need not read them.
        for each in passes(model, [ids[:-1] for ids in rows], split, attention=shared_prompt_attention):
            part = _Continuations([rows[i] for i in each.indices], each.packing)
            for j, prompt in enumerate(columns):
                sums[each.indices, j] = part.score(model, prompt)
    return sums[row_of][:, column_of], torch.tensor(list(map(len, continuations)))


class _Continuations:
    """Continuations that go through the model together, and what every pass over them needs."""

    def __init__(self, sequences: list[tuple[int, ...]], packing: Packing) -> None:
        device = packing.ids.device
        self.lengths, self.packing = [len(ids) for ids in sequences], packing
        self.targets = torch.tensor([token for ids in sequences for token in ids], device=device)
        # Where each token is predicted, counted from the first continuation: -1 is the last token of the prompt.
        before, start = [], 0
        for length in packing.lengths:
            before += [-1, *range(start, start + length)]
            start += length
        self.states = torch.tensor(before, device=device)

    def score(self, model: Any, prompt: Sequence[int]) -> Tensor:
        """Sum of log-probs of each continuation after the prompt."""
        packing, size = self.packing, len(prompt)
        device = packing.ids.device
        positions = torch.cat([torch.arange(size, device=device), size + packing.position_ids[0]])
        ids = torch.cat([torch.tensor(prompt, device=device), packing.ids[0]])
        set_prompt(size)
        output = model.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False)
        hidden = output.last_hidden_state[0][size + self.states]
        chunks = zip(hidden.split(CHUNK_SIZE), self.targets.split(CHUNK_SIZE), strict=True)
        logprobs = torch.cat([logprobs_from_logits(logits_of(model, h).float(), chosen) for h, chosen in chunks])
        return torch.stack([one.sum() for one in logprobs.cpu().double().split(self.lengths)])


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
