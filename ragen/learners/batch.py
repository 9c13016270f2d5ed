"""Samples as tensors: what scoring adds to them and what updates read.

Everything that belongs to a token stands at the token's own index: `old_logprobs[i, t]` is the log-prob of token t,
computed from the hidden state at t - 1; `values[i, t]` is the value of the state in which token t was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ragen.modeling.packing import by_beginning, shared_with_previous
from ragen.types import Sample


@dataclass(kw_only=True, slots=True)
class Batch:
    """Training sequences, padded on the right; tensors are float32 on the CPU, [batch, seq] unless noted."""

    ids: list[list[int]]
    """[batch][length] Token ids without padding."""
    mask: Tensor
    """1.0 exactly on sampled tokens."""
    engine_logprobs: Tensor
    engine_entropies: Tensor | None
    """None where the engine did not tell them."""
    scores: Tensor
    """What the end of each reply earns, at its last token."""
    turn_ends: Tensor
    """1.0 at the last token of each reply."""
    groups: Tensor
    """[batch] int64 Group of each sample."""
    episodes: Tensor
    """[batch] int64 Episode of each sample; several samples share one in the turn-level modes."""
    reward_std: Tensor
    """[batch] Standard deviation of the scores in the sample's group."""
    old_logprobs: Tensor | None = None
    """Log-probs under the policy that is about to be updated."""
    ref_logprobs: Tensor | None = None
    values: Tensor | None = None
    token_rewards: Tensor | None = None
    advantages: Tensor | None = None
    returns: Tensor | None = None
    importance: Tensor | None = None
    """Truncated weights that correct the mismatch between engine and trainer."""
    weights: Tensor | None = None
    """Weight of each token in the loss of its mini batch, by loss_agg_mode."""
    mean_weights: Tensor | None = None
    """Weight of each token in the mean over the tokens of its mini batch, for metrics."""
    turn_ids: Tensor | None = None
    """int64 Turn of each token within its sample, -1 outside replies (gigpo)."""
    anchors: Tensor | None = None
    """[batch, turns] int64 Number of the state each turn started from (gigpo)."""
    step_returns: Tensor | None = None
    """[batch, turns] Discounted rewards from each turn on (gigpo)."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.ids]

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)

    def select(self, indices: Sequence[int]) -> Batch:
        """The samples at `indices`, in that order, without needless padding."""
        index = torch.tensor(indices, dtype=torch.long)
        width = max((len(self.ids[i]) for i in indices), default=0)
        changes: dict[str, object] = {"ids": [self.ids[i] for i in indices]}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                is_per_token = value.ndim == 2 and value.shape[1] == self.mask.shape[1]
                changes[field.name] = value[index, :width] if is_per_token else value[index]
        return replace(self, **changes)  # type: ignore[arg-type]


def make_batch(samples: Sequence[Sample], reward_stds: dict[int, float]) -> Batch:
    """A batch from samples; `reward_stds` holds the standard deviation of each group's scores."""
    width = max(len(sample.input_ids) for sample in samples)
    shape = (len(samples), width)
    mask, logprobs, entropies, scores, turn_ends = (torch.zeros(shape) for _ in range(5))
    has_entropies = all(sample.entropies for sample in samples)
    episode_ids: dict[tuple[int, int], int] = {}
    for row, sample in enumerate(samples):
        length = len(sample.input_ids)
        mask[row, :length] = torch.tensor(sample.loss_mask, dtype=torch.float32)
        logprobs[row, :length] = torch.tensor(sample.logprobs, dtype=torch.float32)
        if has_entropies:
            entropies[row, :length] = torch.tensor(sample.entropies, dtype=torch.float32)
        for (_, end), score in zip(sample.turn_spans, sample.turn_scores, strict=True):
            scores[row, end - 1] = score
            turn_ends[row, end - 1] = 1.0
        episode_ids.setdefault((sample.group_id, sample.member), len(episode_ids))
    return Batch(
        ids=[sample.input_ids for sample in samples],
        mask=mask,
        engine_logprobs=logprobs,
        engine_entropies=entropies if has_entropies else None,
        scores=scores,
        turn_ends=turn_ends,
        groups=torch.tensor([sample.group_id for sample in samples]),
        episodes=torch.tensor([episode_ids[sample.group_id, sample.member] for sample in samples]),
        reward_std=torch.tensor([reward_stds.get(sample.group_id, 0.0) for sample in samples]),
    )


def micro_batches(
    sequences: Sequence[Sequence[int]], *, max_samples: int | None = None, max_tokens: int | None = None
) -> list[list[int]]:
    """Indices in groups of at most `max_samples` sequences or `max_tokens` tokens, common beginnings together.

    A beginning that a sequence shares with the one before it in its group is computed, and counted, once.

    [5, 6], [1], [5, 7], [2], max_samples=2 -> [[1, 3], [0, 2]]
    """
    order = by_beginning(sequences)
    sizes = [len(sequences[i]) for i in order]
    num_new = [size - count for size, count in zip(sizes, shared_with_previous(sequences, order), strict=True)]
    return _split(order, sizes, num_new, max_samples=max_samples, max_tokens=max_tokens)


def by_length(lengths: Sequence[int], *, max_samples: int, max_tokens: int) -> list[list[int]]:
    """Indices in groups of at most `max_samples` sequences and `max_tokens` tokens, similar lengths together.

    lengths [5, 1, 4, 2], max_samples=2, max_tokens=8 -> [[1, 3], [2], [0]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    sizes = [lengths[i] for i in order]
    return _split(order, sizes, sizes, max_samples=max_samples, max_tokens=max_tokens)


def _split(
    order: Sequence[int],
    sizes: Sequence[int],
    sizes_in_group: Sequence[int],
    *,
    max_samples: int | None,
    max_tokens: int | None,
) -> list[list[int]]:
    """Neighbours together; a sequence counts `sizes` tokens where it opens a group, and else `sizes_in_group`."""
    found: list[list[int]] = []
    num_tokens = 0
    for i, size, size_in_group in zip(order, sizes, sizes_in_group, strict=True):
        is_full = not found
        if found and max_samples is not None:
            is_full = len(found[-1]) >= max_samples
        if found and max_tokens is not None:
            is_full = is_full or num_tokens + size_in_group > max_tokens
        if is_full:
            found.append([])
            num_tokens = 0
        num_tokens += size_in_group if found[-1] else size
        found[-1].append(i)
    return found
