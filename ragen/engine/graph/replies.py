"""The open replies of the graph engine as the host knows them: a few launches behind the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Reply, Request, StopReason
from ragen.engine.sessions import Session
from ragen.engine.stopping import StopRules


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Tokens on their way to the host."""

    slots: np.ndarray
    replies: np.ndarray
    """Serial number of the reply each slot was writing."""
    results: Tensor
    """[3, rows] int32 in pinned memory: tokens, and the bits of their log-probs and entropies."""
    done: Any
    """Event after which `results` may be read."""

    def wait(self) -> np.ndarray:
        """The results of the slots, [3, slots]."""
        if self.done is not None:
            self.done.synchronize()
        return self.results.numpy()[:, : len(self.slots)]


class ReplyTable:
    """Arrays by slot, because every step touches all open replies."""

    def __init__(self, num_slots: int, rules: StopRules) -> None:
        self.rules = rules
        self.sessions: list[Session | None] = [None] * num_slots
        self.launched = np.zeros(num_slots, dtype=np.int64)
        """Tokens of the open reply that are drawn, or about to be."""
        self._serial = np.full(num_slots, -1)
        """Number of the open reply; -1 where there is none."""
        self._num_replies = 0
        self._seen = np.zeros(num_slots, dtype=np.int64)  # tokens that have arrived here
        self._limit = np.zeros(num_slots, dtype=np.int64)
        self._rule = np.zeros(num_slots, dtype=np.int64)
        self._drawn = np.zeros((3, num_slots, 0), dtype=np.int32)
        """[3, slots, longest] The open replies so far, as in `Launch.results`."""

    def open(self, sessions: Sequence[Session]) -> None:
        """Their replies begin."""
        longest = max((session.request.params.max_tokens for session in sessions), default=0)
        if longest > self._drawn.shape[2]:
            self._drawn = np.pad(self._drawn, ((0, 0), (0, 0), (0, longest - self._drawn.shape[2])))
        for session in sessions:
            params, slot = session.request.params, session.slot
            self.sessions[slot] = session
            self._serial[slot] = self._num_replies
            self._num_replies += 1
            self.launched[slot] = self._seen[slot] = 0
            self._limit[slot] = params.max_tokens
            self._rule[slot] = self.rules.index(params)

    def is_open(self, slot: int) -> bool:
        return self._serial[slot] >= 0

    def close(self, slot: int) -> None:
        """The slot's reply has ended, or is not wanted any more."""
        self._serial[slot] = -1
        self.sessions[slot] = None

    def clear(self) -> None:
        self._serial[:] = -1
        self.sessions = [None] * len(self.sessions)

    def unfinished(self) -> np.ndarray:
        """Slots whose reply may have one more token."""
        return np.flatnonzero((self._serial >= 0) & (self.launched < self._limit))

    def are_all_unfinished(self, slots: np.ndarray) -> bool:
        return bool((self.launched[slots] < self._limit[slots]).all())

    def truncated(self, slots: np.ndarray) -> list[Request]:
        """The requests of these slots, where top-p or top-k, which the kernels do not know, truncate one of them."""
        requests = [session.request for slot in slots if (session := self.sessions[slot])]
        return requests if any(r.params.top_p < 1 or r.params.top_k > 0 for r in requests) else []

    def launch(self, slots: np.ndarray, results: Tensor) -> Launch:
        """One more token of each slot was launched: have it brought to the host."""
        self.launched[slots] += 1
        done = None
        if results.is_cuda:
            host = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
            host.copy_(results, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        else:
            host = results.clone()
        return Launch(slots=slots, replies=self._serial[slots], results=host, done=done)

    def collect(self, launch: Launch) -> list[tuple[Session, Reply, StopReason]]:
        """Take in the tokens of a launch; returns the replies that end with them."""
        results = launch.wait()
        # Replies that ended since, or whose session is gone, drew this token in vain.
        is_wanted = self._serial[launch.slots] == launch.replies
        slots, drawn = launch.slots[is_wanted], results[:, is_wanted]
        position = self._seen[slots]
        self._drawn[:, slots, position] = drawn
        self._seen[slots] = position + 1
        may_end = self.rules.may_end(self._rule[slots], drawn[0]) | (position + 1 >= self._limit[slots])
        ended = []
        for slot in slots[may_end].tolist():
            session = self.sessions[slot]
            assert session is not None and session.reply is not None
            reply, count = session.reply, int(self._seen[slot])
            last_two = self._drawn[0, slot, max(0, count - 2) : count].tolist()
            if count < self._limit[slot] and not self.rules.may_stop(reply.request.params, last_two):
                continue
            tokens, *bits = self._drawn[:, slot, :count]
            reply.token_ids = tokens.tolist()
            reason = self.rules.reason(reply.request.params, reply.token_ids)
            if reason is not None:
                reply.logprobs, reply.entropies = (numbers.view(np.float32).tolist() for numbers in bits)
                self.close(slot)
                ended.append((session, reply, reason))
        return ended
