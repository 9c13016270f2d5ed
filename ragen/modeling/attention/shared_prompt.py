"""Attention of continuations of one prompt that stands before them in the row once: each sees the prompt and itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from ragen.modeling.attention.masks import hidden_keys, soft_cap
from ragen.modeling.attention.switch import attention_function
from ragen.modeling.packing import Packing

SHARED_PROMPT_ATTENTION = "ragen_shared_prompt"
MAX_SCORES = 2**26
"""Attention scores held at once, 256 MB in float32."""


@dataclass(kw_only=True, slots=True)
class _Current:
    """Where prompt and continuations stand in the row of the pass that attention is called in."""

    packing: Packing
    """Of the continuations alone."""
    num_prompt: int = 0
    masks: dict[int | None, tuple[Tensor, Tensor, Tensor | None]] = field(default_factory=dict)
    """Sliding window -> what is hidden from the prompt, and from continuations of themselves and of the prompt."""


_current: _Current | None = None


@contextmanager
def shared_prompt_attention(model: Any, packing: Packing) -> Iterator[None]:
    """Within: the model's attention keeps the packed continuations apart; `set_prompt` says what they continue."""
    global _current
    outer, _current = _current, _Current(packing=packing)
    try:
        with attention_function(model.config, SHARED_PROMPT_ATTENTION):
            yield
    finally:
        _current = outer


def set_prompt(num_tokens: int) -> None:
    """The passes that follow have so many tokens of a prompt before the continuations."""
    assert _current is not None
    _current.num_prompt, _current.masks = num_tokens, {}


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
    current = _current
    assert current is not None, "shared-prompt attention outside of shared_prompt_attention()"
    if sliding_window not in current.masks:
        current.masks[sliding_window] = _masks(current, sliding_window)
    q, k, v = query[0], key[0], value[0]
    q = q * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    if (share := len(q) // len(k)) > 1:
        k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    num_keys = current.num_prompt + max(current.packing.lengths)
    num_heads = max(1, MAX_SCORES // (q.shape[1] * num_keys))
    parts = zip(q.split(num_heads), k.split(num_heads), v.split(num_heads), strict=True)
    out = torch.cat([_attend(*part, current, current.masks[sliding_window], softcap) for part in parts])
    return out.transpose(0, 1)[None], None


def _masks(current: _Current, window: int | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """[prompt, prompt], [longest, longest] and [tokens, prompt]: True where a query may not look."""
    size, packing = current.num_prompt, current.packing
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
    current: _Current,
    masks: tuple[Tensor, Tensor, Tensor | None],
    softcap: float | None,
) -> Tensor:
    """Attention of some heads, [head, tokens, dim]; queries are scaled."""
    size, packing = current.num_prompt, current.packing
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


AttentionInterface.register(SHARED_PROMPT_ATTENTION, attend_shared_prompt)
