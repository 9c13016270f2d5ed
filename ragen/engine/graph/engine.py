"""The native engine on a GPU: the same promises as `native.NativeEngine`, at the pace of the GPU.

The host never waits for the token it needs next: state lives on the GPU, a step launches a captured graph, and stop
conditions are checked LAG launches behind. What a reply drew past its end is thrown away. Sessions keep the pages of
their cache from turn to turn; sessions that start with the same prompt share its pages.

While few replies are open, a launch takes as long for eight tokens of each as for one. Then the host does wait: it
drafts what each reply may say next (ragen/engine/drafts.py) and launches a check of all drafts at once (verify.py).

Tested in tests/engine/test_graph_engine_interpreted.py and, on a GPU, in tests/gpu/test_engine_cuda.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ragen.engine.base import Completion, Request, Total
from ragen.engine.drafts import NONE, DraftCounts, Judge, SuffixIndex
from ragen.engine.graph.fused import unsupported_reason, weight_addresses
from ragen.engine.graph.pages import PageTables
from ragen.engine.graph.prompts import Piece, plan, prompt_batch
from ragen.engine.graph.replies import Launch, ReplyTable
from ragen.engine.graph.verify import VerifyingRunner
from ragen.engine.sessions import Group, Session, SessionEngine, by_new_prompt
from ragen.engine.stopping import StopRules
from ragen.errors import EngineError
from ragen.modeling.kernels.attention import BLOCK
from ragen.modeling.kernels.session import PAGE
from ragen.types import Metrics

LAG = 3
"""Launches the host may be behind the GPU; fixed, so that batches do not depend on timing."""


class GraphEngine(SessionEngine):
    """Writes replies with a causal language model for which `fused.unsupported_reason` gives none."""

    patience = 4  # each prefill holds up all replies that are being written

    def __init__(
        self, model: Any, tokenizer: Any = None, *, free_cache: bool = True, drafts: bool = False, **sizes: int
    ) -> None:
        """`free_cache`: memory goes at the end of a rollout. `drafts`: several tokens are drawn at once while few
        replies are open. `sizes` are those of `SessionEngine`."""
        super().__init__(**sizes)
        self.has_drafts = drafts
        self.index = SuffixIndex(self.max_num_seqs) if drafts else None
        self.judge = Judge()
        self.counts, self.last_counts = DraftCounts(), DraftCounts()  # of this rollout, and of the last that ended
        self.model, self.free_cache = model, free_cache
        self.max_num_batched_tokens = max(BLOCK, self.max_num_batched_tokens // BLOCK * BLOCK)
        self._make_runner()
        rules = StopRules(tokenizer, vocab=len(self.runner.decoder.head))
        self.replies = ReplyTable(self.max_num_seqs, rules, self.index)
        self._pending: deque[Launch] = deque()
        # The batch of the last decode launch
        self._batch: np.ndarray | None = None
        self._truncated: list[Request] = []

    def _make_runner(self) -> None:
        if reason := unsupported_reason(self.model):
            raise EngineError(
                f"The graph engine cannot run this model: {reason}. Set actor_rollout_ref.rollout.enforce_eager=True."
            )
        with torch.inference_mode(False):  # weights may move, and are trained later
            self.runner = VerifyingRunner(
                self.model,
                num_slots=self.max_num_seqs,
                max_model_len=self.max_model_len,
                pass_tokens=self.max_num_batched_tokens,
                use_graphs=next(self.model.parameters()).is_cuda,
                has_drafts=self.has_drafts,
            )
        self.pages = PageTables(self.runner.pages, page_tokens=PAGE)
        self._addresses = weight_addresses(self.model)

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Launch what can be computed next and return the replies that turn out to be finished."""
        is_busy = self._prefill_queue()
        finished: list[Completion] = []
        while self._pending and self._pending[0].is_check:
            finished += self._collect(self._pending.popleft())
        if self._may_draft():
            while self._pending:
                finished += self._collect(self._pending.popleft())
            is_busy |= self._check_drafts()
        else:
            is_busy |= self._decode()
        while len(self._pending) > LAG or (self._pending and not is_busy and not finished):
            finished += self._collect(self._pending.popleft())
        return finished

    def free_slot(self, session: Session) -> None:
        # Launches under way may still write into these pages; whoever takes them writes later, on the same stream.
        self.pages.drop(session)
        if self.replies.is_open(session.slot):
            self._batch = None
            self.replies.close(session.slot)

    def metrics(self, total: Total = dict) -> Metrics:
        return self.last_counts.summed(total).metrics() if self.index is not None else {}

    def close(self) -> None:
        super().close()
        self._pending.clear()
        self._batch = None
        self.replies.clear()
        self.judge.reset()
        self.counts, self.last_counts = DraftCounts(), self.counts
        if self.index is not None:
            self.index.clear()
        self.pages.clear(free_memory=self.free_cache)

    def _prefill_queue(self) -> bool:
        """Admit queued requests and launch their prompts; False if nothing was launched."""
        if self.queue and not self.live and weight_addresses(self.model) != self._addresses:
            self._make_runner()  # something gave the model's parameters new memory
        admitted = self.admit()
        if not admitted:
            return False
        groups = by_new_prompt(admitted)
        lengths = [group.leader.num_new for group in groups]
        # Pages and state of a prompt are made ready just before its pass: meanwhile the GPU computes the one before.
        for pieces in plan(lengths, self.max_num_batched_tokens, block=BLOCK):
            self._begin([groups[piece.index] for piece in pieces if piece.start == 0])
            self._launch_prompts(pieces, groups)
        self._remember_prompts(groups)
        for session in admitted:
            session.cached = list(session.request.prompt_ids)
        self.num_prefilled += sum(lengths)
        self._batch = None
        return True

    def _remember_prompts(self, groups: Sequence[Group]) -> None:
        """What is new in the prompts is there to draft from, too; a group's once."""
        if self.index is None:
            return
        for group in groups:
            for session in group.members:
                prompt, room = session.request.prompt_ids, session.request.params.max_tokens
                num_known = len(session.cached) if session is group.leader else len(prompt)
                self.index.begin(session.slot, prompt, num_known=num_known, room=room)

    def _begin(self, groups: Sequence[Group]) -> None:
        """Make pages and state of some groups ready."""
        self.runner.copy_pages([pair for group in groups for pair in self.pages.reserve(group.leader)])
        for group in groups:
            self.pages.share(group)
        members = [member for group in groups for member in group.members]
        self.replies.open(members)
        self.runner.write_state(members, self.pages)

    def _launch_prompts(self, pieces: Sequence[Piece], groups: Sequence[Group]) -> None:
        """One forward pass over pieces of prompts; where one ends, its reply and its followers' begin."""
        batch = prompt_batch(pieces, groups, block=BLOCK)
        slots = batch.samples[:, 0]
        results = self.runner.prefill(batch, self.replies.truncated(slots))
        if len(slots):
            self._pending.append(self.replies.launch(slots, results))
        complete = [groups[piece.index] for piece in pieces if piece.stop == groups[piece.index].leader.num_new]
        self.runner.copy_pages([pair for group in complete for pair in self.pages.begun_copies(group)])

    def _decode(self) -> bool:
        """Launch one more token for every open reply that may have one; False if there is none."""
        slots, is_new = self._batch, self._batch is None
        if slots is None:
            slots = self.replies.unfinished()
            self._truncated = self.replies.truncated(slots)
        if not len(slots):
            return False
        counts = self.replies.launched[slots]
        results = self.runner.decode(slots, is_new=is_new, truncated=self._truncated, counts=counts)
        self._pending.append(self.replies.launch(slots, results))
        self._batch = slots if self.replies.are_all_unfinished(slots) else None
        self.counts.launches += 1
        return True

    def _may_draft(self) -> bool:
        """Few replies are open, and drafts have been worth their while."""
        if self.index is None:
            return False
        slots = self.replies.unfinished()
        if not len(slots) or not self.runner.num_drafts(len(slots)) or not self.replies.can_draft(slots):
            return False
        if self.judge.is_worth_it:
            return True
        self.judge.skip()
        return False

    def _check_drafts(self) -> bool:
        """Launch a check of what the open replies may say next; False if there are none. Everything has arrived."""
        slots = self.replies.unfinished()
        if not len(slots):
            return False
        drafts = self.replies.propose(slots, self.runner.num_drafts(len(slots)))
        num_drafts = int((drafts != NONE).sum())
        if not num_drafts:
            self.judge.count(sessions=len(slots), tokens=len(slots))
            return self._decode()
        tokens, positions = self.replies.last_tokens(slots)
        results = self.runner.verify(slots, tokens, drafts, positions)
        self._pending.append(self.replies.launch(slots, results, num_drafts=num_drafts))
        self._batch = None
        self.counts.launches += 1
        return True

    def _collect(self, launch: Launch) -> list[Completion]:
        """Take in the tokens of a launch and close the replies that end with them."""
        finished = []
        ended = self.replies.collect(launch)
        if launch.is_check:
            num_tokens = launch.num_taken
            self.judge.count(sessions=len(launch.slots), tokens=num_tokens)
            self.counts.add(
                sessions=len(launch.slots), drafted=launch.num_drafts, accepted=num_tokens - len(launch.slots)
            )
        for session, reply, reason in ended:
            # Whether the last token was fed is a matter of LAG; it is computed again with the next prompt.
            session.cached += reply.token_ids[:-1]
            session.reply = None
            self.pages.trim(session)
            self._batch = None
            finished.append(reply.completion(reason))
        return finished
