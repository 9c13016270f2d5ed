"""The engine in this process: continuous batching on the actor's own weights.

A session keeps one row of the key-value cache from its first turn to its release, so a new turn costs only its new
tokens. Sessions that start with the same prompt (a group) have it computed once. Every step prefills what is new
and then draws one token for every open reply.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Completion
from ragen.engine.native.kv_cache import RowCache
from ragen.engine.sampling import BatchParams, noise_keys, sample
from ragen.engine.sessions import Session, SessionEngine, by_new_prompt
from ragen.engine.stopping import StopRules
from ragen.errors import EngineError
from ragen.modeling.attention.cached import CACHED, Step


class NativeEngine(SessionEngine):
    """Writes replies with a Hugging Face causal language model. Slots are rows of the cache; rows 0..n-1 are live."""

    def __init__(self, model: Any, tokenizer: Any = None, **sizes: int) -> None:
        """`sizes` are those of `SessionEngine`."""
        super().__init__(**sizes)
        if not model._can_set_attn_implementation():
            raise EngineError(
                f"{type(model).__name__} does not take a custom attention function, which the native engine needs. "
                "Use actor_rollout_ref.rollout.name=vllm."
            )
        self.model = model
        self.device = model.device
        self._batch: _DecodeBatch | None = None
        self._rules = StopRules(tokenizer)
        self._make_cache()

    def _make_cache(self) -> None:
        weight = next(self.model.parameters())
        self.cache = RowCache(
            device=weight.device, dtype=weight.dtype, max_rows=self.max_num_seqs, max_len=self.max_model_len
        )

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Prefill the queued requests that fit, draw one token for every open reply, return finished ones."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        finished = self._prefill_queue()
        finished += self._decode()
        if was_training:
            self.model.train()
        return finished

    def free_slot(self, session: Session) -> None:
        """The last live row moves into the session's."""
        self._batch = None
        last = self.live[-1]
        if last is not session:
            self.cache.copy_row(last.slot, [session.slot], len(last.cached))
            self.exchange_slots(session, last)

    def close(self) -> None:
        """The store goes, too.

        A store that starts small again grows the same way in every training step, so a resumed run computes on the
        same shapes as an uninterrupted one, bit for bit.
        """
        super().close()
        self._batch = None
        self._make_cache()

    # Prefill

    def _prefill_queue(self) -> list[Completion]:
        """Admit queued requests, compute their new tokens and draw the first token of each reply."""
        admitted = self.admit()
        if not admitted:
            return []
        self._batch = None
        requests = [session.request for session in admitted]
        longest = max(len(request.prompt_ids) + request.params.max_tokens for request in requests)
        self.cache.reserve(len(self.live), longest)
        finished: list[Completion] = []
        # Rows with similar numbers of new tokens go together: less padding.
        groups = sorted(by_new_prompt(admitted), key=lambda group: group.leader.num_new)
        while groups:
            batch = [groups.pop()]
            while groups and (len(batch) + 1) * batch[0].leader.num_new <= self.max_num_batched_tokens:
                batch.append(groups.pop())
            batch.sort(key=lambda group: group.leader.slot)
            logits = self._prefill([group.leader for group in batch])
            for group in batch:
                if group.followers:
                    slots = [follower.slot for follower in group.followers]
                    self.cache.copy_row(group.leader.slot, slots, len(group.leader.cached))
                for follower in group.followers:
                    follower.cached = list(group.leader.cached)
            sources = [index for index, group in enumerate(batch) for _ in group.members]
            finished += self._draw([session for group in batch for session in group.members], logits[sources])
        return finished

    def _prefill(self, batch: list[Session]) -> Tensor:
        """Compute the new prompt tokens of the rows; returns the logits after the last one, [rows, vocab].

        Rows are aligned to the right, so the last column of the batch is the last prompt token of every row.
        """
        new = [list(session.request.prompt_ids[len(session.cached) :]) for session in batch]
        starts = [len(session.cached) for session in batch]
        width = max(len(ids) for ids in new)
        piece = max(1, self.max_num_batched_tokens // len(batch))
        logits = None
        slots = [session.slot for session in batch]
        rows = None if slots == [*range(len(slots))] else torch.tensor(slots, device=self.device)
        for left in range(0, width, piece):
            right = min(width, left + piece)
            ids = torch.zeros(len(batch), right - left, dtype=torch.long)
            positions = torch.full_like(ids, self.cache.scratch)
            for i, (tokens, start) in enumerate(zip(new, starts, strict=True)):
                offset = width - len(tokens)
                first = max(left, offset)
                if first < right:
                    ids[i, first - left :] = torch.tensor(tokens[first - offset : right - offset])
                    positions[i, first - left :] = torch.arange(start + first - offset, start + right - offset)
            num_keys = max(start + len(tokens) - (width - right) for start, tokens in zip(starts, new, strict=True))
            step = Step(rows=rows, positions=positions.to(self.device), num_keys=max(num_keys, 1))
            logits = self.forward(ids.to(self.device), step)
        for session, tokens in zip(batch, new, strict=True):
            session.cached += tokens
            self.num_prefilled += len(tokens)
        assert logits is not None
        return logits

    def forward(self, ids: Tensor, step: Step) -> Tensor:
        """Logits after the last token of each batch entry, [batch, vocab]."""
        # Padding tokens get position 0: they are never read, but their position must be a legal one.
        position_ids = step.positions.masked_fill(step.positions == self.cache.scratch, 0)
        with CACHED.serving(self.model.config, step):
            output = self.model(
                input_ids=ids,
                position_ids=position_ids,
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1]

    # Decode

    def _decode(self) -> list[Completion]:
        """One more token for every open reply."""
        if not any(session.reply for session in self.live):
            return []
        if self._batch is None:
            self._batch = _DecodeBatch(self.live, self.device)
        batch = self._batch
        ids = np.array([session.reply.token_ids[-1] if session.reply else 0 for session in self.live])
        positions = np.array([len(session.cached) if session.reply else self.cache.scratch for session in self.live])
        num_keys = int(positions[batch.is_open].max()) + 1
        step = Step(rows=None, positions=torch.from_numpy(positions)[:, None].to(self.device), num_keys=num_keys)
        logits = self.forward(torch.from_numpy(ids)[:, None].to(self.device), step)
        for session, token in zip(batch.sessions, ids[batch.is_open].tolist(), strict=True):
            session.cached.append(token)
        if batch.open_rows is not None:
            logits = logits[batch.open_rows]
        return self._draw(batch.sessions, logits, batch.params)

    def _draw(self, sessions: list[Session], logits: Tensor, params: BatchParams | None = None) -> list[Completion]:
        """Sample the next token of each reply and close the replies that end with it."""
        requests = [session.request for session in sessions]
        params = params or BatchParams([request.params for request in requests], self.device)
        replies = [session.reply for session in sessions if session.reply]
        counts = [len(reply.token_ids) for reply in replies]
        drawn = sample(logits, params, noise_keys([request.seed for request in requests], counts))
        finished = []
        for session, reply, token, logprob, entropy in zip(
            sessions, replies, *(numbers.tolist() for numbers in drawn), strict=True
        ):
            reply.token_ids.append(token)
            reply.logprobs.append(logprob)
            reply.entropies.append(entropy)
            reason = self._rules.reason(reply.request.params, reply.token_ids)
            if reason is not None:
                finished.append(reply.completion(reason))
                session.reply = None
                self._batch = None
        return finished


class _DecodeBatch:
    """What stays the same from one decode step to the next while no reply starts or ends."""

    def __init__(self, live: list[Session], device: torch.device) -> None:
        self.sessions = [session for session in live if session.reply]
        self.is_open = np.array([session.reply is not None for session in live])
        self.open_rows = None if self.is_open.all() else torch.from_numpy(np.flatnonzero(self.is_open)).to(device)
        self.params = BatchParams([session.request.params for session in self.sessions], device)
