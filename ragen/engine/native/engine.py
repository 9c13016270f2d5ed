"""The engine in this process: continuous batching on the actor's own weights.

A session keeps one row of the key-value cache from its first turn to its release, so a new turn costs only its new
tokens. Sessions that start with the same prompt (a group) have it computed once. Every step prefills what is new
and then draws one token for every open reply.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Completion, Engine, Request, check_request
from ragen.engine.graph.fused import why_not
from ragen.engine.native.kv_cache import RowCache
from ragen.engine.prefill import common_prefix
from ragen.engine.sampling import BatchParams, sample, uniform_noise
from ragen.engine.stopping import StopRules
from ragen.errors import EngineError
from ragen.modeling.attention.cached import Step


def native_engine(
    model: Any,
    tokenizer: Any = None,
    *,
    enforce_eager: bool = False,
    free_cache: bool = True,
    **sizes: int,
) -> Engine:
    """The fastest engine of this process that can run the model; `sizes` are those of `NativeEngine`."""
    weight = next(model.parameters())
    is_fast = weight.is_cuda and weight.dtype in (torch.bfloat16, torch.float16) and not enforce_eager
    if is_fast and importlib.util.find_spec("triton") and not why_not(model):
        from ragen.engine.graph.engine import GraphEngine

        return GraphEngine(model, tokenizer, free_cache=free_cache, **sizes)
    return NativeEngine(model, tokenizer, **sizes)


@dataclass(kw_only=True, slots=True)
class _Session:
    """A live row of the cache."""

    session: int
    row: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values stand in the row."""
    request: Request | None = None
    """The open reply; None while the environment is thinking."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    last_used: int = 0


class NativeEngine:
    """Writes replies with a Hugging Face causal language model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        max_num_seqs: int = 256,
        max_model_len: int = 4096,
        max_num_batched_tokens: int = 8192,
    ) -> None:
        if not model._can_set_attn_implementation():
            raise EngineError(
                f"{type(model).__name__} does not take a custom attention function, which the native engine needs. "
                "Use actor_rollout_ref.rollout.name=vllm."
            )
        self.model, self.tokenizer = model, tokenizer
        self.max_num_seqs, self.max_model_len = max_num_seqs, max_model_len
        self.max_num_batched_tokens = max_num_batched_tokens
        weight = next(model.parameters())
        self.device = weight.device
        self.cache = RowCache(device=weight.device, dtype=weight.dtype, max_rows=max_num_seqs, max_len=max_model_len)
        self._rows: list[_Session] = []
        self._sessions: dict[int, _Session] = {}
        self._queue: deque[Request] = deque()
        self._clock = 0
        self._batch: _DecodeBatch | None = None
        self._rules = StopRules(tokenizer)
        self.num_prefilled = 0
        """Prompt tokens that went through the model since the start; shared and cached ones do not."""

    def submit(self, request: Request) -> None:
        session = self._sessions.get(request.session)
        is_open = session is not None and session.request is not None
        check_request(request, max_model_len=self.max_model_len, is_open=is_open)
        self._queue.append(request)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Prefill the queued requests that fit, draw one token for every open reply, return finished ones."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        self._clock += 1
        finished = self._prefill_queue()
        finished += self._decode()
        if was_training:
            self.model.train()
        return finished

    def release(self, session: int) -> None:
        """The session is over: its queued request and its row go."""
        self._queue = deque(request for request in self._queue if request.session != session)
        if session in self._sessions:
            self._free_row(session)

    def _free_row(self, session: int) -> None:
        """Give the session's row back; the last live row moves into it."""
        state = self._sessions.pop(session)
        self._batch = None
        last = self._rows.pop()
        if last is not state:
            self.cache.copy_row(last.row, [state.row], len(last.cached))
            self._rows[state.row] = last
            last.row = state.row

    def sync(self) -> None:
        """The weights changed: every cached key and value is stale. The store goes, too.

        A store that starts small again grows the same way in every training step, so a resumed run computes on the
        same shapes as an uninterrupted one, bit for bit.
        """
        open_sessions = [state.session for state in self._rows if state.request is not None]
        if open_sessions or self._queue:
            raise EngineError(f"weights changed while replies were being written: sessions {open_sessions}")
        self.close()

    def close(self) -> None:
        self._sessions.clear()
        self._rows.clear()
        self._queue.clear()
        self._batch = None
        self.cache = RowCache(
            device=self.device, dtype=self.cache.dtype, max_rows=self.max_num_seqs, max_len=self.max_model_len
        )

    # Prefill

    def _prefill_queue(self) -> list[Completion]:
        """Admit queued requests, compute their new tokens and draw the first token of each reply."""
        admitted = self._admit()
        if not admitted:
            return []
        self._batch = None
        shared, leaders = _by_new_prompt(admitted)
        finished: list[Completion] = []
        # Rows with similar numbers of new tokens go together: less padding.
        leaders.sort(key=lambda state: _num_new(state))
        while leaders:
            batch = [leaders.pop()]
            while leaders and (len(batch) + 1) * _num_new(batch[0]) <= self.max_num_batched_tokens:
                batch.append(leaders.pop())
            batch.sort(key=lambda state: state.row)
            logits = self._prefill(batch)
            states, picks = [], []
            for index, state in enumerate(batch):
                followers = shared[state.session]
                if followers:
                    self.cache.copy_row(state.row, [f.row for f in followers], len(state.cached))
                for follower in followers:
                    follower.cached = list(state.cached)
                states += [state, *followers]
                picks += [index] * (1 + len(followers))
            finished += self._draw(states, logits[picks])
        return finished

    def _admit(self) -> list[_Session]:
        """Give queued requests a row, as long as there are rows; idle sessions make way when nothing else moves."""
        admitted: list[_Session] = []
        while self._queue:
            request = self._queue[0]
            state = self._sessions.get(request.session)
            if state is None:
                if len(self._rows) == self.max_num_seqs and not self._evict_idle():
                    break
                state = _Session(session=request.session, row=len(self._rows))
                self._rows.append(state)
                self._sessions[request.session] = state
            self._queue.popleft()
            state.request, state.token_ids, state.logprobs, state.entropies = request, [], [], []
            state.last_used = self._clock
            prompt = request.prompt_ids if isinstance(request.prompt_ids, list) else list(request.prompt_ids)
            # The last prompt token is always computed: its logits give the first token of the reply.
            state.cached = state.cached[: min(common_prefix(state.cached, prompt), len(prompt) - 1)]
            admitted.append(state)
        if admitted:
            longest = max(len(s.request.prompt_ids) + s.request.params.max_tokens for s in admitted if s.request)
            self.cache.reserve(len(self._rows), longest)
        return admitted

    def _evict_idle(self) -> bool:
        """Drop the cache of the session that waited longest; it is computed again when it comes back."""
        idle = [state for state in self._rows if state.request is None]
        if not idle:
            return False
        # Sessions whose next turn is queued already go last.
        queued = {request.session for request in self._queue}
        self._free_row(min(idle, key=lambda state: (state.session in queued, state.last_used)).session)
        return True

    def _prefill(self, batch: list[_Session]) -> Tensor:
        """Compute the new prompt tokens of the rows; returns the logits after the last one, [rows, vocab].

        Rows are aligned to the right, so the last column of the batch is the last prompt token of every row.
        """
        new = [list(state.request.prompt_ids[len(state.cached) :]) for state in batch if state.request]
        starts = [len(state.cached) for state in batch]
        width = max(len(ids) for ids in new)
        piece = max(1, self.max_num_batched_tokens // len(batch))
        logits = None
        numbers = [state.row for state in batch]
        rows = None if numbers == [*range(len(numbers))] else torch.tensor(numbers, device=self.device)
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
            logits = self._forward(ids.to(self.device), step)
        for state, tokens in zip(batch, new, strict=True):
            state.cached += tokens
            self.num_prefilled += len(tokens)
        assert logits is not None
        return logits

    def _forward(self, ids: Tensor, step: Step) -> Tensor:
        """Logits after the last token of each batch entry, [batch, vocab]."""
        # Padding tokens get position 0: they are never read, but their position must be a legal one.
        position_ids = step.positions.masked_fill(step.positions == self.cache.scratch, 0)
        with self.cache.serving(self.model.config, step):
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
        if not any(state.request is not None for state in self._rows):
            return []
        if self._batch is None:
            self._batch = _DecodeBatch(self._rows, self.device)
        batch = self._batch
        ids = np.array([s.token_ids[-1] if s.request else 0 for s in self._rows])
        places = np.array([len(s.cached) if s.request else self.cache.scratch for s in self._rows])
        num_keys = int(places[batch.is_open].max()) + 1
        step = Step(rows=None, positions=torch.from_numpy(places)[:, None].to(self.device), num_keys=num_keys)
        logits = self._forward(torch.from_numpy(ids)[:, None].to(self.device), step)
        for state in batch.open_states:
            state.cached.append(state.token_ids[-1])
        if batch.open_rows is not None:
            logits = logits[batch.open_rows]
        return self._draw(batch.open_states, logits, batch.params)

    def _draw(self, states: list[_Session], logits: Tensor, params: BatchParams | None = None) -> list[Completion]:
        """Sample the next token of each reply and close the replies that end with it."""
        requests = [state.request for state in states]
        params = params or BatchParams([r.params for r in requests if r], self.device)
        seeds = np.array([r.seed & 0xFFFFFFFFFFFFFFFF for r in requests if r], dtype=np.uint64)
        positions = np.array([len(state.token_ids) for state in states])
        drawn = sample(logits, params, uniform_noise(seeds, positions))
        finished = []
        for state, token, logprob, entropy in zip(states, *(numbers.tolist() for numbers in drawn), strict=True):
            state.token_ids.append(token)
            state.logprobs.append(logprob)
            state.entropies.append(entropy)
            reason = self._rules.reason(state.request.params, state.token_ids) if state.request else None
            if reason is not None:
                finished.append(
                    Completion(
                        session=state.session,
                        token_ids=state.token_ids,
                        logprobs=state.logprobs,
                        entropies=state.entropies,
                        stop_reason=reason,
                    )
                )
                state.request = None
                self._batch = None
        return finished


class _DecodeBatch:
    """What stays the same from one decode step to the next while no reply starts or ends."""

    def __init__(self, rows: list[_Session], device: torch.device) -> None:
        self.open_states = [state for state in rows if state.request is not None]
        self.is_open = np.array([state.request is not None for state in rows])
        self.open_rows = None if self.is_open.all() else torch.from_numpy(np.flatnonzero(self.is_open)).to(device)
        self.params = BatchParams([s.request.params for s in self.open_states if s.request], device)


def _num_new(state: _Session) -> int:
    assert state.request is not None
    return len(state.request.prompt_ids) - len(state.cached)


def _by_new_prompt(admitted: list[_Session]) -> tuple[dict[int, list[_Session]], list[_Session]]:
    """Sessions without any cache that have the same prompt follow the first of them."""
    followers: dict[int, list[_Session]] = {}
    first: dict[tuple[int, ...], _Session] = {}
    leaders = []
    for state in admitted:
        assert state.request is not None
        followers[state.session] = []
        if not state.cached:
            leader = first.setdefault(tuple(state.request.prompt_ids), state)
            if leader is not state:
                followers[leader.session].append(state)
                continue
        leaders.append(state)
    return followers, leaders
