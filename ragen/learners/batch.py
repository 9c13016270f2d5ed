"""Samples as tensors: what scoring adds to them and what updates read.

Everything that belongs to a token stands at the token's own index: `old_logprobs[i, t]` is the log-prob of token t,
computed from the hidden state at t - 1; `values[i, t]` is the value of the state in which token t was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ragen.modeling.packing import Packings
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
    packings: Packings = field(default_factory=Packings, repr=False)
    """What passes over these samples have prepared; selections share it."""

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
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                is_per_token = value.ndim == 2 and value.shape[1] == self.mask.shape[1]
                changes[each.name] = value[index, :width] if is_per_token else value[index]
        return replace(self, **changes)  # type: ignore[arg-type]

    def weightless(self) -> Batch:
        """The same samples without any weight in losses and metrics."""
        assert self.weights is not None and self.mean_weights is not None
        return replace(self, weights=self.weights * 0, mean_weights=self.mean_weights * 0)


def make_batch(samples: Sequence[Sample], reward_stds: dict[int, float]) -> Batch:
    """A batch from samples; `reward_stds` holds the standard deviation of each group's scores."""
    ids = [sample.input_ids for sample in samples]
    mask = _padded([sample.loss_mask for sample in samples], ids)
    scores, turn_ends = torch.zeros_like(mask), torch.zeros_like(mask)
    has_entropies = all(sample.entropies for sample in samples)
    episode_ids: dict[tuple[int, int], int] = {}
    for row, sample in enumerate(samples):
        for (_, end), score in zip(sample.turn_spans, sample.turn_scores, strict=True):
            scores[row, end - 1] = score
            turn_ends[row, end - 1] = 1.0
        episode_ids.setdefault((sample.group_id, sample.member), len(episode_ids))
    return Batch(
        ids=ids,
        mask=mask,
        engine_logprobs=_padded([sample.logprobs for sample in samples], ids),
        engine_entropies=_padded([sample.entropies for sample in samples], ids) if has_entropies else None,
        scores=scores,
        turn_ends=turn_ends,
        groups=torch.tensor([sample.group_id for sample in samples]),
        episodes=torch.tensor([episode_ids[sample.group_id, sample.member] for sample in samples]),
        reward_std=torch.tensor([reward_stds.get(sample.group_id, 0.0) for sample in samples]),
    )


def _padded(rows: Sequence[Sequence[float]], ids: Sequence[Sequence[int]]) -> Tensor:  # [batch, seq]
    # Padding would hide what is missing.
    assert list(map(len, rows)) == list(map(len, ids)), "a sample has another number of values than of tokens"
    return pad_sequence([torch.tensor(row, dtype=torch.float32) for row in rows], batch_first=True)
