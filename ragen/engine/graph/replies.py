"""The open replies of the graph engine as the host knows them: a few launches behind the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Reply, Request, StopReason
from ragen.engine.drafts import NONE, SuffixIndex
from ragen.engine.sessions import Session
from ragen.engine.stopping import StopRules


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Tokens on their way to the host."""

    slots: np.ndarray
    replies: np.ndarray
    """Serial number of the reply each slot was writing."""
    results: Tensor
    """[3, rows] int32 in pinned memory: tokens, and the bits of their log-probs and entropies. Of a check of drafts
    [4, slots * width], each slot's tokens side by side, with whether they are taken."""
    done: Any
    """Event after which `results` may be read."""
    num_drafts: int = 0
    """Of a check: the drafts of all slots."""

    @property
    def is_check(self) -> bool:
        """How many tokens it adds to a reply is known when it arrives, not before."""
        return len(self.results) == 4

    @property
    def num_taken(self) -> int:
        """Tokens that a check adds, once it has arrived."""
        return int(self.results[3].sum())

    def wait(self) -> tuple[np.ndarray, np.ndarray]:
        """The results, [3, slots, tokens], and which of these are taken, [slots, tokens]."""
        if self.done is not None:
            self.done.synchronize()
        results = self.results.numpy()
        if self.is_check:
            results = results.reshape(4, len(self.slots), -1)
            return results[:3], results[3] > 0
        results = results[:, : len(self.slots), None]
        return results, np.ones(results.shape[1:], dtype=bool)


class ReplyTable:
    """Arrays by slot, because every step touches all open replies."""

    def __init__(self, num_slots: int, rules: StopRules, index: SuffixIndex | None = None) -> None:
        """`index`: what arrives is remembered there, to draft from."""
        self.rules, self.index = rules, index
        self.sessions: list[Session | None] = [None] * num_slots
        self.launched = np.zeros(num_slots, dtype=np.int64)
        """Tokens of the open reply that are drawn, or about to be."""
        self._serial = np.full(num_slots, -1)
        """Number of the open reply; -1 where there is none."""
        self._num_replies = 0
        self._seen = np.zeros(num_slots, dtype=np.int64)  # tokens that have arrived here
        self._limit = np.zeros(num_slots, dtype=np.int64)
        self._rule = np.zeros(num_slots, dtype=np.int64)
        self._num_prompt = np.zeros(num_slots, dtype=np.int64)
        self._is_truncated = np.zeros(num_slots, dtype=bool)
        self._drawn = np.zeros((3, num_slots, 0), dtype=np.int32)
        """[3, slots, longest] The open replies so far, as in `Launch.results`."""

    def open(self, sessions: Sequence[Session]) -> None:
        """Their replies begin."""
        longest = max((session.request.params.max_tokens for session in sessions), default=0)
        if longest > self._drawn.shape[2]:
            wider = np.zeros((*self._drawn.shape[:2], longest), dtype=np.int32)
            wider[:, :, : self._drawn.shape[2]] = self._drawn
            self._drawn = wider
        for session in sessions:
            params, slot = session.request.params, session.slot
            self.sessions[slot] = session
            self._serial[slot] = self._num_replies
            self._num_replies += 1
            self.launched[slot] = self._seen[slot] = 0
            self._limit[slot] = params.max_tokens
            self._rule[slot] = self.rules.index(params)
            self._num_prompt[slot] = len(session.request.prompt_ids)
            self._is_truncated[slot] = _is_truncated(session.request)

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
        return requests if self._is_truncated[slots].any() else []

    def can_draft(self, slots: np.ndarray) -> bool:
        """Whether drafts of these slots can be checked: the kernels draw their tokens."""
        return not self._is_truncated[slots].any()

    def last_tokens(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The last token of each slot and its position, where everything launched has arrived."""
        seen = self._seen[slots]
        assert (seen > 0).all() and (seen == self.launched[slots]).all(), "tokens are still on their way"
        return self._drawn[0, slots, seen - 1].astype(np.int64), self._num_prompt[slots] + seen - 1

    def propose(self, slots: np.ndarray, most: int) -> np.ndarray:
        """Drafts [slots, most]; none that would make a reply longer than it may be."""
        assert self.index is not None
        # The token that is drawn after the last draft counts, too.
        room = self._limit[slots] - self._seen[slots] - 1
        return np.where(np.arange(most) < room[:, None], self.index.propose(slots, most), NONE)

    def launch(self, slots: np.ndarray, results: Tensor, *, num_drafts: int = 0) -> Launch:
        """One more token of each slot was launched, or a check of drafts: have it brought to the host."""
        if len(results) == 3:
            self.launched[slots] += 1
        done = None
        if results.is_cuda:
            host = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
            host.copy_(results, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        else:
            host = results.clone()
        return Launch(slots=slots, replies=self._serial[slots], results=host, done=done, num_drafts=num_drafts)

    def collect(self, launch: Launch) -> list[tuple[Session, Reply, StopReason]]:
        """Take in the tokens of a launch; returns the replies that end with them."""
        results, is_taken = launch.wait()
        # Replies that ended since, or whose session is gone, drew this token in vain.
        rows, offsets = np.nonzero(is_taken & (self._serial[launch.slots] == launch.replies)[:, None])
        slots, drawn = launch.slots[rows], results[:, rows, offsets]
        position = self._seen[slots] + offsets
        self._drawn[:, slots, position] = drawn
        # Each slot's tokens are in order, and of several numbers for a slot the last one stays.
        self._seen[slots] = position + 1
        self.launched[slots] = np.maximum(self.launched[slots], position + 1)
        may_end = self.rules.may_end(self._rule[slots], drawn[0]) | (position + 1 >= self._limit[slots])
        ended = []
        for slot, length in zip(slots[may_end].tolist(), (position[may_end] + 1).tolist(), strict=True):
            session = self.sessions[slot]
            if session is None:
                continue  # it ended with an earlier token of the same launch
            assert session.reply is not None
            reply = session.reply
            last_two = self._drawn[0, slot, max(0, length - 2) : length].tolist()
            if length < self._limit[slot] and not self.rules.may_stop(reply.request.params, last_two):
                continue
            tokens, *bits = self._drawn[:, slot, :length]
            reply.token_ids = tokens.tolist()
            reason = self.rules.reason(reply.request.params, reply.token_ids)
            if reason is not None:
                reply.logprobs, reply.entropies = (numbers.view(np.float32).tolist() for numbers in bits)
                self._seen[slot] = length  # a check of drafts may have drawn more
                self.close(slot)
                ended.append((session, reply, reason))
        if self.index is not None:
            is_said = position < self._seen[slots]
            self.index.extend(slots[is_said], offsets[is_said], drawn[0][is_said])
        return ended


def _is_truncated(request: Request) -> bool:
    return request.params.top_p < 1 or request.params.top_k > 0
