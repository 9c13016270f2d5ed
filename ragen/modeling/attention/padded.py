"""Attention of packed sequences where there is no kernel for it: padded, in calls of sequences of similar size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from ragen.modeling.attention.masks import additive, hidden_keys, soft_cap
from ragen.modeling.attention.switch import Heads
from ragen.modeling.rows import take_rows

CALL_COST = 2**14
"""What one more call of padded attention costs, in pairs of query and key (measured with the embedded models)."""
MAX_PAIRS = 2**26
"""Pairs in one call: the mask that common beginnings need has a number for each, 256 MB in float32."""

Masks = dict[tuple[int, int | None], Tensor | None]
"""Bucket and sliding window -> mask, kept for the layers of one pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Sequences whose attention is computed in one call."""

    positions: Tensor
    """[sequences, queries] Position of each query in its sequence; 0 for padding."""
    is_query: Tensor
    """[sequences, queries] False on padding."""
    keys: Tensor
    """[sequences, keys] Index of each token in the row; padding points at token 0, which causality hides."""

    @property
    def queries(self) -> Tensor:
        """[sequences, queries] Index of each query in the row."""
        return self.keys.gather(1, self.positions)

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """0 where a query may look and -inf elsewhere, [sequences or 1, 1, queries, keys]; None: plainly causal."""
        num_queries, num_keys = self.positions.shape[1], self.keys.shape[1]
        positions = torch.arange(num_queries, device=self.keys.device)[None]
        is_plain = num_queries == num_keys and bool(((self.positions == positions) | ~self.is_query).all())
        if is_plain and (window is None or num_keys <= window):
            return None
        positions = (positions if is_plain else self.positions)[:, None, :, None]
        return additive(hidden_keys(positions, torch.arange(num_keys, device=positions.device), window), dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the tokens of a row get into buckets and back."""

    buckets: list[Bucket]
    queries: Tensor
    """Index in the row of each query of all buckets, one after another."""
    keys: Tensor
    back: Tensor
    """Index among the queries of each token that is one, in the order of the row."""


def layout_of(to_padded: Tensor, queries: Tensor) -> Layout:
    """Buckets of sequences with similar numbers of queries, which are given by index in the flattened padded form."""
    device = to_padded.device
    to_padded = to_padded.cpu()
    is_query = torch.zeros(to_padded.shape, dtype=torch.bool)
    is_query.view(-1)[queries.cpu()] = True
    positions = [row.nonzero()[:, 0] for row in is_query]
    sizes = [(len(found), int(found[-1]) + 1 if len(found) else 0) for found in positions]
    buckets: list[Bucket] = []
    for members in _split_into_buckets(sizes):
        padded = pad_sequence([positions[i] for i in members], batch_first=True)
        counts = torch.tensor([sizes[i][0] for i in members])
        buckets.append(
            Bucket(
                positions=padded.to(device),
                is_query=(torch.arange(padded.shape[1]) < counts[:, None]).to(device),
                keys=to_padded[members, : max(sizes[i][1] for i in members)].to(device),
            )
        )
    indices = torch.cat([bucket.queries.flatten() for bucket in buckets])
    used = torch.cat([bucket.is_query.flatten() for bucket in buckets]).nonzero()[:, 0]
    return Layout(
        buckets=buckets,
        queries=indices,
        keys=torch.cat([bucket.keys.flatten() for bucket in buckets]),
        back=used[indices[used].argsort()],
    )


def _split_into_buckets(sizes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Members of each bucket, from the numbers of queries and keys of each sequence; without queries it is left out.

    Sorted by queries and split where the padding that is saved is worth more than a call.
    """
    order = sorted((i for i, (queries, _) in enumerate(sizes) if queries), key=lambda i: -sizes[i][0])
    # best[n]: the least cost of the first n sequences, and where the last bucket of that split begins.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        choices: list[tuple[int, int]] = []
        most_keys = 0
        for start in reversed(range(end)):
            queries, keys = sizes[order[start]]
            most_keys = max(most_keys, keys)
            pairs = (end - start) * queries * most_keys
            if pairs > MAX_PAIRS and choices:
                break
            choices.append((best[start][0] + pairs + CALL_COST, start))
        best.append(min(choices))
    buckets: list[list[int]] = []
    end = len(order)
    while end:
        start = best[end][1]
        buckets.append(order[start:end])
        end = start
    return buckets


def attend_padded(heads: Heads, layout: Layout, masks: Masks) -> Tensor:
    """Causal attention of the layout's queries, [1, head, tokens, dim] -> [1, queries, head, dim]."""

    def into_buckets(tensor: Tensor, index: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
        """[1, head, tokens, dim] -> [sequences, head, tokens, dim] for each bucket."""
        # One look-up for all buckets: the gradient of each would be a tensor of all tokens.
        parts = take_rows(tensor[0].transpose(0, 1), index).split([shape.numel() for shape in shapes])
        return [part.unflatten(0, shape).transpose(1, 2) for part, shape in zip(parts, shapes, strict=True)]

    buckets, window = layout.buckets, heads.window
    key_shapes = [bucket.keys.shape for bucket in buckets]
    qs = into_buckets(heads.query, layout.queries, [bucket.positions.shape for bucket in buckets])
    ks, vs = (into_buckets(tensor, layout.keys, key_shapes) for tensor in (heads.key, heads.value))
    outs: list[Tensor] = []
    for bucket, q, k, v in zip(buckets, qs, ks, vs, strict=True):
        if (id(bucket), window) not in masks:
            masks[id(bucket), window] = bucket.mask(window, q.dtype)
        mask = masks[id(bucket), window]
        if heads.softcap:
            out = _attend_capped(q, k, v, mask, heads.scaling, heads.softcap)
        else:
            out = scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=mask,
                is_causal=mask is None,
                scale=heads.scaling,
                dropout_p=heads.dropout,
                enable_gqa=heads.is_grouped,
            )
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return take_rows(torch.cat(outs), layout.back)[None]


def _attend_capped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, softcap: float) -> Tensor:
    """Plain attention with a soft cap on the scores."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    if mask is None:
        columns = torch.arange(k.shape[2], device=q.device)
        mask = additive(hidden_keys(columns[:, None], columns, None), q.dtype)
    scores = soft_cap(q @ k.transpose(2, 3) * scale, softcap) + mask
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v
