"""Draws tokens in vLLM by the code and the noise of the native engine: a logits processor of vLLM's.

Tested in tests/vllm/test_sampler.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import BatchParams, noise_keys, sample

ENTROPIES: dict[int, list[float]] = {}
"""Number of a reply -> entropy where each of its tokens was drawn, until the engine takes them (see worker.py)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request in vLLM's batch; all but the last comes from the engine."""

    reply: int
    """Its number in `ENTROPIES`."""
    params: SamplingParams
    seed: int
    forced: list[int]
    """Tokens that are scored instead of drawn."""
    token_ids: list[int]
    """The reply so far; vLLM's own list, which grows."""


class NoiseSampler(LogitsProcessor):
    """Draws each token itself: what it leaves of the logits is the log-prob of the drawn token alone.

    vLLM then takes the greatest and, in the mode `processed_logits`, reports it as it stands.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.device = device
        self.rows: dict[int, Row] = {}
        self.params: BatchParams | None = None

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow what vLLM did to its batch: removed, then added, then moved."""
        if batch_update is None:
            return
        self.params = None
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, params, _, token_ids in batch_update.added:
            self.rows[index] = Row(token_ids=token_ids, **params.extra_args)
        for source, target, direction in batch_update.moved:
            moved, replaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moved is not None:
                self.rows[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self.rows[source] = replaced

    def apply(self, logits: Tensor) -> Tensor:
        """Logits [requests, vocab] with one finite number per row."""
        rows = [self.rows[i] for i in range(len(logits))]
        self.params = self.params or BatchParams([row.params for row in rows], self.device)
        positions = [len(row.token_ids) for row in rows]
        keys = noise_keys([row.seed for row in rows], positions)
        tokens, logprobs, entropies = sample(logits, self.params, keys)
        for row, position, entropy in zip(rows, positions, entropies.tolist(), strict=True):
            # What was drawn in the middle of a prompt, vLLM throws away and draws again.
            ENTROPIES.setdefault(row.reply, [])[position:] = [entropy]
        for i, (row, position) in enumerate(zip(rows, positions, strict=True)):
            if position < len(row.forced):
                tokens[i] = row.forced[position]
                logprobs[i] = torch.log_softmax(logits[i].float(), dim=-1)[tokens[i]]
        return logits.fill_(-torch.inf).scatter_(1, tokens[:, None], logprobs[:, None])
