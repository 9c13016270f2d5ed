"""The native engine on a GPU: the same promises as `native.NativeEngine`, at the pace of the GPU.

The host never waits for the token it needs next: state lives on the GPU, a step launches a captured graph, and stop
conditions are checked LAG launches behind. What a reply drew past its end is thrown away. Sessions keep the pages of
their cache from turn to turn; sessions that start with the same prompt share its pages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragen.engine.base import Completion, Request, SamplingParams, StopReason, check_request
from ragen.engine.graph.decode import Cuts, PromptBatch, Runner
from ragen.engine.graph.fused import addresses, why_not
from ragen.engine.prefill import Piece, common_prefix, plan
from ragen.engine.stopping import StopRules
from ragen.errors import EngineError
from ragen.modeling.kernels.attention import BLOCK
from ragen.modeling.kernels.session import COUNT, HEADER, PAGE, POSITION, SEED, TEMPERATURE

LAG = 3
"""Launches the host may be behind the GPU; fixed, so that batches do not depend on timing."""
PATIENCE = 4
"""Steps a new turn may wait for others, while many replies are being written: each prefill holds them all up."""


@dataclass(kw_only=True, slots=True)
class _Session:
    """A conversation with pages in the cache."""

    session: int
    slot: int
    cached: list[int] = field(default_factory=list)
    """Tokens whose keys and values stand in the pages."""
    pages: list[int] = field(default_factory=list)
    request: Request | None = None
    """The open reply; None while the environment is thinking."""
    last_used: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Launch:
    """Tokens on their way to the host."""

    slots: np.ndarray
    replies: np.ndarray
    """Serial number of the reply each slot was writing."""
    results: Tensor
    """[3, rows] int32 in pinned memory: tokens, and the bits of their log-probs and entropies."""
    done: Any
    """Event after which `results` may be read."""


class GraphEngine:
    """Writes replies with a causal language model that `fused.why_not` has nothing against."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        max_num_seqs: int = 256,
        max_model_len: int = 4096,
        max_num_batched_tokens: int = 8192,
        free_cache: bool = True,
    ) -> None:
        self.model = model
        self.max_num_seqs, self.max_model_len = max_num_seqs, max_model_len
        self.max_num_batched_tokens = max(BLOCK, max_num_batched_tokens // BLOCK * BLOCK)
        self.free_cache = free_cache
        self.num_prefilled = 0
        """Prompt tokens that went through the model since the start; shared and cached ones do not."""
        self._make_runner()
        self._rules = StopRules(tokenizer, vocab=len(self.runner.decoder.head))
        self._sessions: dict[int, _Session] = {}
        self._queue: deque[Request] = deque()
        self._pending: deque[_Launch] = deque()
        self._clock = self._queued_at = self._num_replies = 0
        # By slot
        self._by_slot: list[_Session | None] = [None] * max_num_seqs
        self._free_slots = list(reversed(range(max_num_seqs)))
        self._reply = np.full(max_num_seqs, -1)  # serial number of the open reply
        self._launched = np.zeros(max_num_seqs, dtype=np.int64)  # tokens of it drawn, or about to be
        self._seen = np.zeros(max_num_seqs, dtype=np.int64)  # tokens of it that have arrived here
        self._limit = np.zeros(max_num_seqs, dtype=np.int64)
        self._rule = np.zeros(max_num_seqs, dtype=np.int64)
        self._seeds = np.zeros(max_num_seqs, dtype=np.uint64)
        self._tokens = np.zeros((max_num_seqs, 0), dtype=np.int32)
        self._logprobs = np.zeros((max_num_seqs, 0), dtype=np.float32)
        self._entropies = np.zeros((max_num_seqs, 0), dtype=np.float32)
        # The batch of the last decode launch
        self._batch: np.ndarray | None = None
        self._cuts: Cuts | None = None

    def _make_runner(self) -> None:
        if reason := why_not(self.model):
            raise EngineError(f"The graph engine cannot run this model: {reason}. Set rollout.enforce_eager=True.")
        with torch.inference_mode(False):  # weights may move, and are trained later
            self.runner = Runner(
                self.model,
                num_slots=self.max_num_seqs,
                max_model_len=self.max_model_len,
                pass_tokens=self.max_num_batched_tokens,
                use_graphs=next(self.model.parameters()).is_cuda,
            )
        self._addresses = addresses(self.model)

    def submit(self, request: Request) -> None:
        session = self._sessions.get(request.session)
        is_open = session is not None and session.request is not None
        check_request(request, max_model_len=self.max_model_len, is_open=is_open)
        if not self._queue:
            self._queued_at = self._clock
        self._queue.append(request)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Launch what can be computed next and return the replies that turn out to be finished."""
        self._clock += 1
        is_busy = self._prefill_queue()
        is_busy |= self._decode()
        finished: list[Completion] = []
        while len(self._pending) > LAG or (self._pending and not is_busy and not finished):
            finished += self._collect(self._pending.popleft())
        return finished

    def release(self, session: int) -> None:
        """The session is over: its queued request and its pages go."""
        self._queue = deque(request for request in self._queue if request.session != session)
        if session in self._sessions:
            self._forget(self._sessions.pop(session))

    def _forget(self, session: _Session) -> None:
        # Launches under way may still write into these pages; whoever takes them writes later, on the same stream.
        self.runner.pages.drop(session.pages)
        if self._reply[session.slot] >= 0:
            self._batch = None
        self._reply[session.slot] = -1
        self._by_slot[session.slot] = None
        self._free_slots.append(session.slot)

    def sync(self) -> None:
        """The weights changed: every cached key and value is stale."""
        open_sessions = [s.session for s in self._sessions.values() if s.request is not None]
        if open_sessions or self._queue:
            raise EngineError(f"weights changed while replies were being written: sessions {open_sessions}")
        self.close()

    def close(self) -> None:
        self._sessions.clear()
        self._queue.clear()
        self._pending.clear()
        self._batch = None
        self._reply[:] = -1
        self._by_slot = [None] * self.max_num_seqs
        self._free_slots = list(reversed(range(self.max_num_seqs)))
        self.runner.pages.clear(free_memory=self.free_cache)

    # Prefill

    def _prefill_queue(self) -> bool:
        """Admit queued requests and launch their prompts; False if nothing was launched."""
        if not self._queue:
            return False
        num_open = np.count_nonzero(self._reply >= 0)
        if len(self._queue) * 8 < num_open and self._clock - self._queued_at < PATIENCE:
            return False
        if not self._sessions and addresses(self.model) != self._addresses:
            self._make_runner()  # something gave the model's parameters new memory
        admitted = self._admit()
        if not admitted:
            return False
        self._queued_at = self._clock
        followers, leaders = _by_new_prompt(admitted)
        lengths = [len(_request(leader).prompt_ids) - len(leader.cached) for leader in leaders]
        # Pages and state of a prompt are made ready just before its pass: meanwhile the GPU computes the one before.
        for pieces in plan(lengths, self.max_num_batched_tokens, block=BLOCK):
            self._begin([leaders[piece.index] for piece in pieces if piece.start == 0], followers)
            self._launch_prompts(pieces, leaders, followers)
        for session in admitted:
            session.cached = list(_request(session).prompt_ids)
        self.num_prefilled += sum(lengths)
        self._batch = None
        return True

    def _begin(self, leaders: list[_Session], followers: dict[int, list[_Session]]) -> None:
        """Make pages and state of some prompts, and of those that follow them, ready."""
        self.runner.copy_pages([pair for leader in leaders for pair in self._hold_pages(leader)])
        for leader in leaders:
            self._share_pages(leader, followers[leader.slot])
        self._write_state([session for leader in leaders for session in (leader, *followers[leader.slot])])

    def _admit(self) -> list[_Session]:
        """Give queued requests a slot, as long as there are any; idle sessions make way."""
        admitted: list[_Session] = []
        while self._queue:
            request = self._queue[0]
            session = self._sessions.get(request.session)
            if session is None:
                if not self._free_slots and not self._evict_idle():
                    break
                session = _Session(session=request.session, slot=self._free_slots.pop())
                self._by_slot[session.slot] = session
                self._sessions[request.session] = session
            self._queue.popleft()
            session.request, session.last_used = request, self._clock
            prompt = request.prompt_ids if isinstance(request.prompt_ids, list) else list(request.prompt_ids)
            # The last prompt token is always computed: its logits give the first token of the reply.
            session.cached = session.cached[: min(common_prefix(session.cached, prompt), len(prompt) - 1)]
            admitted.append(session)
        return admitted

    def _evict_idle(self) -> bool:
        """Drop the session that waited longest; its context is computed again when it comes back."""
        idle = [session for session in self._sessions.values() if session.request is None]
        if not idle:
            return False
        # Sessions whose next turn is queued already go last.
        queued = {request.session for request in self._queue}
        victim = min(idle, key=lambda session: (session.session in queued, session.last_used))
        self._forget(self._sessions.pop(victim.session))
        return True

    def _hold_pages(self, session: _Session) -> list[tuple[int, int]]:
        """Give a session pages for its prompt and its longest reply; returns the pages to copy first, (from, to).

        Pages it shares with others stay shared where it only reads them.
        """
        pool, pages = self.runner.pages, session.pages
        num_full, tail = divmod(len(session.cached), PAGE)
        copies = []
        if tail and pool.is_shared(pages[num_full]):
            (own,) = pool.take(1)
            copies.append((pages[num_full], own))
            pool.drop([pages[num_full]])
            pages[num_full] = own
        num_kept = num_full + bool(tail)
        while len(pages) > num_kept:
            pool.drop([pages.pop()])
        pages += pool.take(_num_pages(session) - len(pages))
        return copies

    def _share_pages(self, leader: _Session, followers: list[_Session]) -> None:
        """Followers read the leader's full prompt pages; the last, begun one they have for themselves."""
        pool, num_full = self.runner.pages, len(_request(leader).prompt_ids) // PAGE
        for follower in followers:
            pool.share(leader.pages[:num_full])
            follower.pages = leader.pages[:num_full] + pool.take(_num_pages(follower) - num_full)

    def _write_state(self, admitted: list[_Session]) -> None:
        """Tell host arrays and GPU about new replies."""
        if not admitted:
            return
        longest = max(_request(session).params.max_tokens for session in admitted)
        if longest > self._tokens.shape[1]:
            wider = ((0, 0), (0, longest - self._tokens.shape[1]))
            self._tokens, self._logprobs, self._entropies = (
                np.pad(array, wider) for array in (self._tokens, self._logprobs, self._entropies)
            )
        rows = np.zeros((len(admitted), HEADER + self.runner.max_pages), dtype=np.int64)
        for row, session in zip(rows, admitted, strict=True):
            request, slot = _request(session), session.slot
            self._reply[slot] = self._num_replies
            self._num_replies += 1
            self._launched[slot] = self._seen[slot] = 0
            self._limit[slot] = request.params.max_tokens
            self._rule[slot] = self._rules.index(request.params)
            self._seeds[slot] = request.seed & 0xFFFFFFFFFFFFFFFF
            row[SEED] = self._seeds[slot : slot + 1].view(np.int64)[0]
            row[POSITION], row[COUNT] = len(request.prompt_ids), 0
            row[TEMPERATURE] = np.float64(request.params.temperature).view(np.int64)
            row[HEADER : HEADER + len(session.pages)] = session.pages
        self.runner.write_state([session.slot for session in admitted], rows)

    def _launch_prompts(
        self, pieces: list[Piece], leaders: list[_Session], followers: dict[int, list[_Session]]
    ) -> None:
        """One forward pass over pieces of prompts; where one ends, its reply and its followers' begin."""
        num_tokens = sum(piece.padded(BLOCK) for piece in pieces)
        ids = np.zeros(num_tokens, dtype=np.int64)
        blocks = np.zeros((num_tokens // BLOCK, 3), dtype=np.int64)
        samples: list[tuple[int, int]] = []
        copies: list[tuple[int, int]] = []
        row = 0
        for piece in pieces:
            leader, length = leaders[piece.index], piece.stop - piece.start
            prompt, places = _request(leader).prompt_ids, len(leader.cached) + np.arange(piece.start, piece.stop, BLOCK)
            end = len(leader.cached) + piece.stop
            ids[row : row + length] = prompt[end - length : end]
            own = blocks[row // BLOCK : row // BLOCK + len(places)]
            own[:, 0], own[:, 1], own[:, 2] = leader.slot, places, np.minimum(BLOCK, end - places)
            if end == len(prompt):
                samples += [(session.slot, row + length - 1) for session in (leader, *followers[leader.slot])]
                if end % PAGE:
                    begun = end // PAGE
                    copies += [(leader.pages[begun], follower.pages[begun]) for follower in followers[leader.slot]]
            row += piece.padded(BLOCK)
        drawn = np.array(samples, dtype=np.int64).reshape(-1, 2)
        batch = PromptBatch(ids=ids, blocks=blocks, samples=drawn)
        slots = drawn[:, 0]
        results = self.runner.prefill(batch, self._cuts_of(slots))
        self._launched[slots] += 1
        if len(slots):
            self._expect(slots, results)
        self.runner.copy_pages(copies)

    # Decode

    def _decode(self) -> bool:
        """Launch one more token for every open reply that may have one; False if there is none."""
        if self._batch is None:
            slots = np.flatnonzero((self._reply >= 0) & (self._launched < self._limit))
            self._cuts = self._cuts_of(slots)
        else:
            slots = self._batch
        if not len(slots):
            return False
        results = self.runner.decode(
            slots, is_new=self._batch is None, cuts=self._cuts, counts=self._launched[slots].copy()
        )
        self._launched[slots] += 1
        self._expect(slots, results)
        self._batch = None if (self._launched[slots] >= self._limit[slots]).any() else slots
        return True

    def _cuts_of(self, slots: np.ndarray) -> Cuts | None:
        params: list[SamplingParams] = [_request(self._by_slot[slot]).params for slot in slots]
        if not any(p.top_p < 1 or p.top_k > 0 for p in params):
            return None
        return Cuts(params=params, seeds=self._seeds[slots])

    def _expect(self, slots: np.ndarray, results: Tensor) -> None:
        """Have the tokens brought to the host."""
        done = None
        if results.is_cuda:
            host = torch.empty(results.shape, dtype=results.dtype, pin_memory=True)
            host.copy_(results, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        else:
            host = results.clone()
        self._pending.append(_Launch(slots=slots, replies=self._reply[slots], results=host, done=done))

    def _collect(self, launch: _Launch) -> list[Completion]:
        """Take in the tokens of a launch and close the replies that end with them."""
        if launch.done is not None:
            launch.done.synchronize()
        results = launch.results.numpy()
        # Replies that ended since, or whose session is gone, drew this token in vain.
        is_wanted = self._reply[launch.slots] == launch.replies
        slots = launch.slots[is_wanted]
        tokens, logprobs, entropies = results[:, : len(launch.slots)][:, is_wanted]
        place = self._seen[slots]
        self._tokens[slots, place] = tokens
        self._logprobs[slots, place] = logprobs.view(np.float32)
        self._entropies[slots, place] = entropies.view(np.float32)
        self._seen[slots] = place + 1
        may_end = self._rules.may_end(self._rule[slots], tokens) | (place + 1 >= self._limit[slots])
        finished = []
        for slot in slots[may_end].tolist():
            session = self._by_slot[slot]
            request = _request(session)
            token_ids = self._tokens[slot, : self._seen[slot]].tolist()
            reason = self._rules.reason(request.params, token_ids)
            if reason is not None:
                finished.append(self._close(session, token_ids, reason))
        return finished

    def _close(self, session: _Session | None, token_ids: list[int], reason: StopReason) -> Completion:
        assert session is not None
        slot = session.slot
        # Whether the last token was fed is a matter of LAG; it is computed again with the next prompt.
        session.cached += token_ids[:-1]
        session.request = None
        self._reply[slot] = -1
        self._batch = None
        num_pages = -(-len(session.cached) // PAGE)
        self.runner.pages.drop(session.pages[num_pages:])
        del session.pages[num_pages:]
        return Completion(
            session=session.session,
            token_ids=token_ids,
            logprobs=self._logprobs[slot, : len(token_ids)].tolist(),
            entropies=self._entropies[slot, : len(token_ids)].tolist(),
            stop_reason=reason,
        )


def _request(session: _Session | None) -> Request:
    assert session is not None and session.request is not None
    return session.request


def _num_pages(session: _Session) -> int:
    """Pages for the prompt and the longest reply."""
    request = _request(session)
    return -(-(len(request.prompt_ids) + request.params.max_tokens) // PAGE)


def _by_new_prompt(admitted: list[_Session]) -> tuple[dict[int, list[_Session]], list[_Session]]:
    """Sessions without any cache that have the same prompt follow the first of them: (followers by slot, leaders)."""
    followers: dict[int, list[_Session]] = {}
    first: dict[tuple[int, ...], _Session] = {}
    leaders = []
    for session in admitted:
        followers[session.slot] = []
        if not session.cached:
            leader = first.setdefault(tuple(_request(session).prompt_ids), session)
            if leader is not session:
                followers[leader.slot].append(session)
                continue
        leaders.append(session)
    return followers, leaders
