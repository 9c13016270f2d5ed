"""The log-prob of every continuation after every prompt.

Scoring 64 continuations after each of 64 prompts as whole sequences would read every prompt 64 times. Here one pass
reads a prompt once and all continuations after it, in one row without padding: each continuation sees the prompt and
itself. As in `packed`, only attention knows; it is registered under a name of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AttentionInterface

from ragen.algorithms.entropy import CHUNK_SIZE, logprobs_from_logits
from ragen.learners.batch import by_length
from ragen.modeling.attention.switch import attention_function
from ragen.modeling.packing import Packing, pack
from ragen.modeling.passes import logits_of

SHARED_PROMPT_ATTENTION = "ragen_shared_prompt"
MAX_TOKENS = 16384
"""Continuation tokens of one pass; bounds its memory when thoughts are long."""
MAX_SCORES = 2**26
"""Attention scores held at once, 256 MB in float32."""

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
    device = next(model.parameters()).device
    with _evaluating(model):
        for chosen in by_length(list(map(len, rows)), max_samples=micro_batch_size, max_tokens=MAX_TOKENS):
            part = _Continuations([rows[i] for i in chosen], device)
            for j, prompt in enumerate(columns):
                sums[chosen, j] = part.score(model, torch.tensor(prompt, device=device))
    return sums[row_of][:, column_of], torch.tensor(list(map(len, continuations)))


class _Continuations:
    """Continuations that go through the model together, and what every pass over them needs."""

    def __init__(self, sequences: list[tuple[int, ...]], device: torch.device) -> None:
        self.lengths = [len(ids) for ids in sequences]
        # Nothing follows the last tokens, so the model need not read them.
        ids, self.packing = pack([ids[:-1] for ids in sequences], device, share=False)
        self.ids = ids[0].long()  # one-token continuations leave none, which torch takes for floats
        self.targets = torch.tensor([token for ids in sequences for token in ids], device=device)
        # Where each token is predicted, counted from the first continuation: -1 is the last token of the prompt.
        starts = self.packing.offsets[:-1].tolist()
        before = [[-1, *range(start, start + n - 1)] for start, n in zip(starts, self.lengths, strict=True)]
        self.states = torch.tensor([state for states in before for state in states], device=device)

    def score(self, model: Any, prompt: Tensor) -> Tensor:
        """Sum of log-probs of each continuation after the prompt [tokens]."""
        size = len(prompt)
        positions = torch.cat([torch.arange(size, device=prompt.device), size + self.packing.position_ids[0]])
        ids = torch.cat([prompt, self.ids])
        with _shared_prompt(model, _Layout(num_prompt=size, packing=self.packing, masks={})):
            output = model.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False)
        hidden = output.last_hidden_state[0][size + self.states]
        chunks = zip(hidden.split(CHUNK_SIZE), self.targets.split(CHUNK_SIZE), strict=True)
        logprobs = torch.cat([logprobs_from_logits(logits_of(model, h).float(), chosen) for h, chosen in chunks])
        return torch.stack([one.sum() for one in logprobs.cpu().double().split(self.lengths)])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """Where prompt and continuations stand in the row of a pass."""

    num_prompt: int
    packing: Packing
    """Of the continuations alone."""
    masks: dict[int | None, tuple[Tensor, Tensor, Tensor | None]]
    """Sliding window -> what is hidden from the prompt, and from continuations of themselves and of the prompt."""


_layout: _Layout | None = None


@contextmanager
def _shared_prompt(model: Any, layout: _Layout) -> Iterator[None]:
    """Within: the model's attention keeps the continuations apart."""
    global _layout
    outer, _layout = _layout, layout
    try:
        with attention_function(model.config, SHARED_PROMPT_ATTENTION):
            yield
    finally:
        _layout = outer


def attend_shared_prompt(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Each continuation attends to the prompt and, causally, to itself.

    [1, head, tokens, dim] -> [1, tokens, head, dim]

    The scores against the prompt are one matrix product for all continuations; its keys are never copied.
    """
    layout = _layout
    assert layout is not None, "shared-prompt attention outside of a pass"
    if sliding_window not in layout.masks:
        layout.masks[sliding_window] = _hidden(layout, sliding_window, query.device)
    q, k, v = query[0], key[0], value[0]
    q = q * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    if (share := len(q) // len(k)) > 1:
        k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    num_keys = layout.num_prompt + max(layout.packing.lengths)
    num_heads = max(1, MAX_SCORES // (q.shape[1] * num_keys))
    parts = zip(q.split(num_heads), k.split(num_heads), v.split(num_heads), strict=True)
    out = torch.cat([_attend(*part, layout, layout.masks[sliding_window], softcap) for part in parts])
    return out.transpose(0, 1)[None], None


def _hidden(layout: _Layout, window: int | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """[prompt, prompt], [longest, longest] and [tokens, prompt]: True where a query may not look."""
    size, packing = layout.num_prompt, layout.packing

    def hidden(queries: Tensor, keys: Tensor) -> Tensor:
        ahead = keys > queries[:, None]
        return ahead if window is None else ahead | (keys <= queries[:, None] - window)

    prompt, own = torch.arange(size, device=device), torch.arange(max(packing.lengths), device=device)
    reaches_back = window is not None and window < size + max(packing.lengths)
    from_prompt = hidden(size + packing.position_ids[0], prompt) if reaches_back else None
    return hidden(prompt, prompt), hidden(own, own), from_prompt


def _attend(
    q: Tensor, k: Tensor, v: Tensor, layout: _Layout, masks: tuple[Tensor, Tensor, Tensor | None], softcap: float | None
) -> Tensor:
    """Attention of some heads, [head, tokens, dim]; queries are scaled."""
    size, packing = layout.num_prompt, layout.packing
    in_prompt, in_own, in_prompt_from_own = masks

    def scores(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        products = queries @ keys.mT
        if softcap:
            products = softcap * torch.tanh(products / softcap)
        return products if mask is None else products.masked_fill_(mask, float("-inf"))

    def softmax(logits: Tensor) -> Tensor:
        return logits.softmax(-1, dtype=torch.float32).to(v.dtype)

    def pad(tokens: Tensor) -> Tensor:
        """[head, tokens, dim] -> [head, continuations, longest, dim]; padding comes last, which causality hides."""
        return tokens[:, packing.to_padded]

    def unpad(padded: Tensor) -> Tensor:
        return padded.flatten(1, 2)[:, packing.to_packed]

    (prompt_q, own_q), (prompt_k, own_k), (prompt_v, own_v) = (t.split([size, t.shape[1] - size], 1) for t in (q, k, v))
    prompt_out = softmax(scores(prompt_q, prompt_k, in_prompt)) @ prompt_v
    own_scores = unpad(scores(pad(own_q), pad(own_k), in_own))
    weights = softmax(torch.cat([scores(own_q, prompt_k, in_prompt_from_own), own_scores], -1))
    on_prompt, on_own = weights.split([size, weights.shape[-1] - size], -1)
    return torch.cat([prompt_out, on_prompt @ prompt_v + unpad(pad(on_own) @ pad(own_v))], 1)


AttentionInterface.register(SHARED_PROMPT_ATTENTION, attend_shared_prompt)


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
    """The different items in order of appearance, and the place of each item among them.

    a b a -> [a, b], [0, 1, 0]
    """
    places = {item: place for place, item in enumerate(dict.fromkeys(items))}
    return list(places), [places[item] for item in items]
