"""Attention of continuations of one prompt that stands before them in the row once: each sees the prompt and itself.

Tested in tests/learners/test_cross_scoring.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ragen.modeling.attention.masks import hidden_keys, soft_cap
from ragen.modeling.attention.switch import Attention, Heads
from ragen.modeling.packing import Packing

MAX_SCORES = 2**26
"""Attention scores held at once, 256 MB in float32."""


@dataclass(kw_only=True, slots=True)
class Row:
    """Where prompt and continuations stand in the row of a pass."""

    packing: Packing
    """Of the continuations alone."""
    num_prompt: int = 0
    masks: dict[int | None, tuple[Tensor, Tensor, Tensor | None]] = field(default_factory=dict)
    """Sliding window -> what is hidden from the prompt, and from continuations of themselves and of the prompt."""


def shared_prompt_attention(model: Any, packing: Packing) -> AbstractContextManager[Any]:
    """Within: the model's attention keeps the packed continuations apart; `set_prompt` says what they continue."""
    return SHARED_PROMPT.serving(model.config, Row(packing=packing))


def set_prompt(num_tokens: int) -> None:
    """The passes that follow have so many tokens of a prompt before the continuations."""
    row = SHARED_PROMPT.state
    row.num_prompt, row.masks = num_tokens, {}


def attend_shared_prompt(heads: Heads, row: Row) -> Tensor:
    """Each continuation attends to the prompt and, causally, to itself.

    The scores against the prompt are one matrix product for all continuations; its keys are never copied.
    """
    if heads.window not in row.masks:
        row.masks[heads.window] = _masks(row, heads.window)
    q, k, v = heads.query[0] * heads.scaling, heads.key[0], heads.value[0]
    if (share := len(q) // len(k)) > 1:
        k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    num_keys = row.num_prompt + max(row.packing.lengths)
    num_heads = max(1, MAX_SCORES // (q.shape[1] * num_keys))
    parts = zip(q.split(num_heads), k.split(num_heads), v.split(num_heads), strict=True)
    out = torch.cat([_attend(*part, row, row.masks[heads.window], heads.softcap) for part in parts])
    return out.transpose(0, 1)[None]


def _masks(row: Row, window: int | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """[prompt, prompt], [longest, longest] and [tokens, prompt]: True where a query may not look."""
    size, packing = row.num_prompt, row.packing
    longest, device = max(packing.lengths), packing.ids.device
    prompt, own = torch.arange(size, device=device), torch.arange(longest, device=device)
    from_prompt = None
    if window is not None and window < size + longest:
        from_prompt = hidden_keys(size + packing.position_ids[0][:, None], prompt, window)
    return hidden_keys(prompt[:, None], prompt, window), hidden_keys(own[:, None], own, window), from_prompt


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row: Row,
    masks: tuple[Tensor, Tensor, Tensor | None],
    softcap: float | None,
) -> Tensor:
    """Attention of some heads, [head, tokens, dim]; queries are scaled."""
    size, packing = row.num_prompt, row.packing
    in_prompt, in_own, in_prompt_from_own = masks

    def scores(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        products = soft_cap(queries @ keys.mT, softcap)
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


SHARED_PROMPT = Attention("ragen_shared_prompt", attend_shared_prompt)
