"""The models of a trainer as tables: what `Scorer` asks of its workers, for the policies of decisions.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from parts.decisions import FIRST_STATE_TOKEN, SEPARATOR, Policy, Reply
from torch import Tensor

from ragen.learners.batch import Batch

Values = dict[tuple[int, ...], float]
"""The tokens before a sampled token -> what the critic expects from there on; 0 where it knows nothing."""
NO_CHOICE = -1


class TabularWorkers:
    """Actor, reference and critic."""

    def __init__(self, policy: Policy, reference: Policy, values: Values) -> None:
        self.policy, self.table = policy, values
        self.actor_logprobs, self.reference_logprobs = (model.logprobs().tolist() for model in (policy, reference))

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._per_choice(batch, self.actor_logprobs), torch.zeros_like(batch.mask)

    def ref_logprobs(self, batch: Batch) -> Tensor:
        return self._per_choice(batch, self.reference_logprobs)

    def values(self, batch: Batch) -> Tensor:
        @cache
        def expected(ids: tuple[int, ...]) -> list[float]:
            return [self.table.get(ids[:t], 0.0) for t in range(len(ids))]

        return _rows(batch, expected, fill=0.0) * batch.mask

    def choices(self, batch: Batch) -> Tensor:  # [batch, seq] int64
        """The choice behind each sampled token, NO_CHOICE elsewhere."""
        return _rows(batch, lambda ids: read_choices(self.policy, ids), fill=NO_CHOICE)

    def _per_choice(self, batch: Batch, numbers: Sequence[float]) -> Tensor:
        @cache
        def read(ids: tuple[int, ...]) -> list[float]:
            return [0.0 if choice == NO_CHOICE else numbers[choice] for choice in read_choices(self.policy, ids)]

        return _rows(batch, read, fill=0.0)


@cache
def read_choices(policy: Policy, ids: tuple[int, ...]) -> list[int]:
    """What the policy chose at each token, from the prompts and replies alone, as a language model would read them."""
    found: list[int] = []
    seen, reply = "", Reply()
    for token in ids:
        if token >= FIRST_STATE_TOKEN:
            seen, reply = policy.process.seen[token - FIRST_STATE_TOKEN], ()
        if token >= SEPARATOR:
            found.append(NO_CHOICE)
        else:
            found.append(policy.index[seen, reply, token])
            reply = (*reply, token)
    return found


def _rows(batch: Batch, look_up: Callable[[tuple[int, ...]], list], *, fill: float) -> Tensor:  # [batch, seq]
    width = batch.mask.shape[1]
    rows = [look_up(tuple(ids)) for ids in batch.ids]
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])
