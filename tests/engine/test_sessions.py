"""Queue, admission and eviction, with a decoder that answers from memory."""

from __future__ import annotations

import pytest

from ragen.engine.base import Completion, Request, SamplingParams, StopReason
from ragen.engine.sessions import Session, SessionEngine, by_new_prompt, common_prefix
from ragen.errors import EngineError


class FakeEngine(SessionEngine):
    """Every reply is the token 9, `num_tokens` times: one with each step, the first in that of its admission."""

    def __init__(self, *, num_tokens: int = 1, patience: int = 0, **sizes: int) -> None:
        super().__init__(**sizes)
        self.num_tokens, self.patience = num_tokens, patience
        self.admitted: list[list[int]] = []
        self.freed: list[int] = []

    def step(self) -> list[Completion]:
        admitted = self.admit()
        self.admitted.append([session.name for session in admitted])
        for session in admitted:
            self.num_prefilled += session.num_new
            session.cached = list(session.request.prompt_ids)
        finished = []
        for session in self.live:
            if session.reply is None:
                continue
            session.reply.token_ids.append(9)
            if len(session.reply.token_ids) == self.num_tokens:
                finished.append(session.reply.completion(StopReason.LENGTH))
                session.cached += session.reply.token_ids[:-1]
                session.reply = None
        return finished

    def free_slot(self, session: Session) -> None:
        self.freed.append(session.name)


def request(session: int, ids: list[int] | None = None) -> Request:
    params = SamplingParams(max_tokens=2)
    return Request(session=session, prompt_ids=ids or [1, 2, 3], params=params, seed=0)


def submit(engine: SessionEngine, *sessions: int) -> None:
    for session in sessions:
        engine.submit(request(session))


def slots(engine: SessionEngine) -> dict[int, int]:
    return {session.name: session.slot for session in engine.live}


def test_requests_are_admitted_in_the_order_of_the_queue_while_there_are_slots():
    engine = FakeEngine(max_num_seqs=2, num_tokens=2)
    submit(engine, 5, 3, 8)
    assert engine.step() == []
    assert slots(engine) == {5: 0, 3: 1}
    assert [done.session for done in engine.step()] == [5, 3]
    engine.step()  # 5 and 3 are idle now, and the first of them makes way
    assert engine.admitted == [[5, 3], [], [8]]
    assert (engine.freed, slots(engine)) == ([5], {3: 1, 8: 0})


def test_a_session_keeps_its_slot_and_only_the_new_tokens_are_computed():
    engine = FakeEngine()
    submit(engine, 0, 1)
    engine.step()
    engine.submit(request(1, [1, 2, 3, 9, 4]))
    engine.step()
    assert engine.num_prefilled == 3 + 3 + 2
    assert slots(engine) == {0: 0, 1: 1}


def test_the_last_prompt_token_is_always_computed():
    engine = FakeEngine()
    submit(engine, 0)
    engine.step()
    submit(engine, 0)  # the same prompt again
    engine.step()
    assert engine.num_prefilled == 3 + 1


def test_of_idle_sessions_the_one_that_waited_longest_makes_way():
    engine = FakeEngine(max_num_seqs=3)
    submit(engine, 0, 1)
    engine.step()
    submit(engine, 2)
    engine.step()
    submit(engine, 0)
    engine.step()
    submit(engine, 7, 8)
    engine.step()
    assert engine.freed == [1, 2]


def test_a_session_whose_next_turn_is_queued_makes_way_last():
    engine = FakeEngine(max_num_seqs=2)
    submit(engine, 0, 1)
    engine.step()
    submit(engine, 2, 0)  # 0 and 1 have waited equally long
    engine.step()
    assert engine.freed == [1]
    assert engine.admitted[-1] == [2, 0]


def test_open_replies_never_make_way():
    engine = FakeEngine(max_num_seqs=1, num_tokens=3)
    submit(engine, 0, 1)
    engine.step()
    engine.step()
    assert (engine.admitted, engine.freed) == ([[0], []], [])


def test_a_released_session_leaves_queue_and_slot():
    engine = FakeEngine(max_num_seqs=1, num_tokens=5)
    submit(engine, 0, 1, 2)
    engine.step()
    engine.release(1)
    engine.release(0)
    engine.release(99)  # one that never was
    engine.step()
    assert (engine.admitted, engine.freed, slots(engine)) == ([[0], [2]], [0], {2: 0})


def test_the_slot_that_was_freed_last_is_given_first():
    engine = FakeEngine(max_num_seqs=4)
    submit(engine, 0, 1, 2)
    engine.step()
    engine.release(2)
    engine.release(0)
    submit(engine, 5, 6, 7)
    engine.step()
    assert slots(engine) == {1: 1, 5: 0, 6: 2, 7: 3}


def test_sessions_that_exchange_their_slots_exchange_their_order():
    engine = FakeEngine(max_num_seqs=2)
    submit(engine, 0, 1)
    engine.step()
    engine.exchange_slots(*engine.live)
    assert [(session.name, session.slot) for session in engine.live] == [(1, 0), (0, 1)]
    submit(engine, 2)
    engine.step()
    assert engine.freed == [1]


def test_few_new_requests_wait_for_more_while_many_replies_are_written():
    engine = FakeEngine(patience=3, num_tokens=100)
    submit(engine, *range(9))
    engine.step()  # with nothing else to do, nobody waits
    submit(engine, 20)
    for _ in range(3):
        engine.step()
    assert engine.admitted == [list(range(9)), [], [], [20]]
    submit(engine, 21, 22)  # two are an eighth of what is written
    engine.step()
    assert engine.admitted[-1] == [21, 22]


def test_what_cannot_be_answered_is_refused():
    engine = FakeEngine(max_model_len=10, num_tokens=2)
    with pytest.raises(EngineError, match=r"prompt \(9\) \+ max_tokens \(2\) exceed max_model_len=10"):
        engine.submit(request(0, list(range(9))))
    submit(engine, 0)
    engine.step()
    with pytest.raises(EngineError, match="session 0 already has an open request"):
        submit(engine, 0)
    with pytest.raises(EngineError, match=r"sessions \[0\]"):
        engine.end_rollout()


def test_nothing_is_left_of_a_rollout():
    engine = FakeEngine(max_num_seqs=2)
    submit(engine, 0, 1)
    engine.step()
    engine.end_rollout()
    assert engine.live == []
    submit(engine, 0)
    engine.step()
    assert engine.num_prefilled == 3 * 3
    assert slots(engine) == {0: 0}


def test_equal_new_prompts_have_one_leader():
    engine = FakeEngine()
    prompts = {0: [1, 2], 1: [1, 2], 2: [1, 3], 3: [1, 2]}
    for session, ids in prompts.items():
        engine.submit(request(session, ids))
    groups = by_new_prompt(engine.admit())
    assert [[member.name for member in group.members] for group in groups] == [[0, 1, 3], [2]]


def test_sessions_with_a_cache_lead_themselves():
    engine = FakeEngine()
    submit(engine, 0, 1)
    engine.step()
    submit(engine, 0, 1)
    assert [group.followers for group in by_new_prompt(engine.admit())] == [[], []]


def test_the_common_prefix_of_two_contexts():
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 4, 5]) == 2
    assert common_prefix([], [1]) == 0
