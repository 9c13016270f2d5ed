"""Who waits, who has a slot of the cache, and who makes way: what the engines of this process have in common.

A request waits in a queue until its session has a slot. A session keeps its slot and what is cached in it from its
first turn to its release; only an idle one, whose environment is thinking, makes way when slots run out. Sessions that
start with the same prompt are a group: the prompt is computed for its leader, the others take over the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ragen.engine.base import Engine, Reply, Request, check_request
from ragen.errors import EngineError


@dataclass(kw_only=True, slots=True, eq=False)
class Session:
    """A conversation with a slot of the cache."""

    name: int
    """`Request.session` of its requests."""
    slot: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values stand in the slot."""
    reply: Reply | None = None
    """The open reply; None while the environment is thinking."""
    last_used: int = 0
    """Step in which its last request was admitted."""

    @property
    def request(self) -> Request:
        """What the open reply answers."""
        assert self.reply is not None
        return self.reply.request

    @property
    def num_new(self) -> int:
        """Prompt tokens that are still to be computed."""
        return len(self.request.prompt_ids) - len(self.cached)


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions that begin with the same prompt, which is computed for the leader only."""

    leader: Session
    followers: list[Session] = field(default_factory=list)

    @property
    def members(self) -> list[Session]:
        return [self.leader, *self.followers]


class SessionEngine(Engine):
    """Queue, admission and eviction of sessions. Subclasses compute: `step`, `close` and `free_slot`."""

    patience = 0
    """Steps in which a few new requests may wait for more, while many replies are being written."""

    def __init__(
        self, *, max_num_seqs: int = 256, max_model_len: int = 4096, max_num_batched_tokens: int = 8192
    ) -> None:
        """`max_num_seqs` is the number of slots; `max_num_batched_tokens` of prompts go through the model at once."""
        self.max_num_seqs, self.max_model_len = max_num_seqs, max_model_len
        self.max_num_batched_tokens = max_num_batched_tokens
        self.queue: deque[Request] = deque()
        self.live: list[Session] = []
        """All that have a slot; where last_used does not decide, the first of them makes way first."""
        self.num_prefilled = 0
        """Prompt tokens that went through the model since the start; shared and cached ones do not."""
        self._by_name: dict[int, Session] = {}
        self._free_slots = list(reversed(range(max_num_seqs)))
        self._clock = self._queued_at = 0

    def free_slot(self, session: Session) -> None:
        """The session is about to lose its slot: what is cached there goes."""
        raise NotImplementedError

    def submit(self, request: Request) -> None:
        session = self._by_name.get(request.session)
        is_open = session is not None and session.reply is not None
        check_request(request, max_model_len=self.max_model_len, is_open=is_open)
        if not self.queue:
            self._queued_at = self._clock
        self.queue.append(request)

    def written(self, session: int) -> Sequence[int]:
        found = self._by_name.get(session)
        return found.reply.token_ids if found is not None and found.reply is not None else ()

    def release(self, session: int) -> None:
        """The session is over: its queued request and its slot go."""
        self.queue = deque(request for request in self.queue if request.session != session)
        if session in self._by_name:
            self._drop(self._by_name[session])

    def end_rollout(self) -> None:
        """Every cached key and value goes: the next rollout plays with other weights."""
        open_sessions = [session.name for session in self.live if session.reply is not None]
        if open_sessions or self.queue:
            raise EngineError(f"weights changed while replies were being written: sessions {open_sessions}")
        self.close()

    def close(self) -> None:
        self.queue.clear()
        self.live.clear()
        self._by_name.clear()
        self._free_slots = list(reversed(range(self.max_num_seqs)))

    def admit(self) -> list[Session]:
        """Once a step: the sessions whose queued requests are answered from now on, in the order of the queue."""
        self._clock += 1
        if self._is_waiting():
            return []
        admitted: list[Session] = []
        while self.queue:
            session = self._by_name.get(self.queue[0].session) or self._new_session(self.queue[0].session)
            if session is None:
                break
            request = self.queue.popleft()
            session.reply, session.last_used = Reply(request), self._clock
            prompt = request.prompt_ids if isinstance(request.prompt_ids, list) else list(request.prompt_ids)
            # The last prompt token is always computed: its logits give the first token of the reply.
            session.cached = session.cached[: min(common_prefix(session.cached, prompt), len(prompt) - 1)]
            admitted.append(session)
        if admitted:
            self._queued_at = self._clock
        return admitted

    def _is_waiting(self) -> bool:
        if not self.patience or not self.queue or self._clock - self._queued_at >= self.patience:
            return False
        return len(self.queue) * 8 < sum(session.reply is not None for session in self.live)

    def _new_session(self, name: int) -> Session | None:
        """A session with a free slot; idle ones make way, and None if there are none of these either."""
        if not self._free_slots and not self._evict_idle():
            return None
        session = self._by_name[name] = Session(name=name, slot=self._free_slots.pop())
        self.live.append(session)
        return session

    def _evict_idle(self) -> bool:
        """Drop the session that waited longest; its context is computed again when it comes back."""
        idle = [session for session in self.live if session.reply is None]
        if not idle:
            return False
        # Sessions whose next turn is queued already go last.
        queued = {request.session for request in self.queue}
        self._drop(min(idle, key=lambda session: (session.name in queued, session.last_used)))
        return True

    def _drop(self, session: Session) -> None:
        self.free_slot(session)
        self.live.remove(session)
        del self._by_name[session.name]
        self._free_slots.append(session.slot)

    def exchange_slots(self, one: Session, other: Session) -> None:
        """Each gets the slot of the other, and its index in `live`."""
        first, second = self.live.index(one), self.live.index(other)
        self.live[first], self.live[second] = other, one
        one.slot, other.slot = other.slot, one.slot


def by_new_prompt(admitted: Sequence[Session]) -> list[Group]:
    """Sessions without any cache that have the same prompt follow the first of them; all others are alone."""
    groups: dict[int | tuple[int, ...], Group] = {}
    for session in admitted:
        key = session.name if session.cached else tuple(session.request.prompt_ids)
        if key in groups:
            groups[key].followers.append(session)
        else:
            groups[key] = Group(session)
    return list(groups.values())


def common_prefix(cached: list[int], prompt: list[int]) -> int:
    """Length of the common prefix of two token lists."""
    length = min(len(cached), len(prompt))
    if cached[:length] == prompt[:length]:
        return length
    same = np.array(cached[:length]) == np.array(prompt[:length])
    return int(same.argmin())
