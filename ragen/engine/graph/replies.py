"""The open replies of the graph engine as the host knows them: a few launches behind the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Reply, Request, StopReason
from ragen.engine.drafts import NONE, SuffixIndex
from ragen.engine.sessions import Session
from ragen.engine.stopping import StopRules


class Arrival:
    """Memory on the host to which the results of a launch are copied, without anybody waiting; for one at a time."""

    def __init__(self, like: Tensor) -> None:
        self.host = torch.empty(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        self.results = self.host.numpy()
        """To be read once `wait` has returned."""
        self._done = torch.cuda.Event() if like.is_cuda else None

    def expect(self, results: Tensor) -> None:
        self.host.copy_(results, non_blocking=True)
        if self._done is not None:
            self._done.record()

    def wait(self) -> np.ndarray:
        if self._done is not None:
            self._done.synchronize()
        return self.results


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Tokens on their way to the host."""

    slots: np.ndarray
    replies: np.ndarray
    """Serial number of the reply each slot was writing."""
    arrival: Arrival
    """[3, rows] tokens, and the bits of their log-probs and entropies. Of a check of drafts [4, slots * width], each
    slot's tokens side by side, with whether they are taken."""
    is_check: bool
    """How many tokens it adds to a reply is known when it arrives, not before."""
    num_drafts: int = 0
    """Of a check: the drafts of all slots."""

    @property
    def num_taken(self) -> int:
        """Tokens that a check adds, once it has arrived; to be read before the next launch."""
        return int(self.arrival.results[3].sum())

    def taken(self, is_wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Waits for the tokens and returns those taken of the slots that are wanted: the index of the slot in `slots`,
        the number of the token among those of its slot, and the results [3, taken]."""
        results = self.arrival.wait()
        if not self.is_check:
            rows = np.flatnonzero(is_wanted)
            return rows, np.zeros_like(rows), results[:, rows]
        results = results.reshape(4, len(self.slots), -1)
        rows, offsets = np.nonzero((results[3] > 0) & is_wanted[:, None])
        return rows, offsets, results[:3, rows, offsets]


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
        """[3, slots, longest] The open replies so far, as in `Launch.arrival`."""
        self._arrivals: dict[torch.Size, list[Arrival]] = {}
        """By shape: those whose results have been taken in. Using them again is a quarter of the time of new ones."""

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
        if not self._is_truncated[slots].any():
            return []
        return [session.request for slot in slots if (session := self.sessions[slot])]

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
        is_check = len(results) == 4
        if not is_check:
            self.launched[slots] += 1
        known = self._arrivals.get(results.shape)
        arrival = known.pop() if known else Arrival(results)
        arrival.expect(results)
        return Launch(
            slots=slots, replies=self._serial[slots], arrival=arrival, is_check=is_check, num_drafts=num_drafts
        )

    def collect(self, launch: Launch) -> list[tuple[Session, Reply, StopReason]]:
        """Take in the tokens of a launch; returns the replies that end with them."""
        # Replies that ended since, or whose session is gone, drew this token in vain.
        rows, offsets, drawn = launch.taken(self._serial[launch.slots] == launch.replies)
        self._arrivals.setdefault(launch.arrival.host.shape, []).append(launch.arrival)
        slots = launch.slots[rows]
        position = self._seen[slots] + offsets
        self._drawn[:, slots, position] = drawn
        # Each slot's tokens are in order, and of several numbers for a slot the last one stays.
        self._seen[slots] = position + 1
        if launch.is_check:
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
