"""Drafts in the graph engine, its kernels run by Triton's interpreter: the tokens are those of plain decoding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.base import StopReason
from ragen.engine.drafts import NONE
from ragen.engine.graph.engine import GraphEngine
from ragen.engine.native.engine import NativeEngine
from ragen.trainer.starting.memory import graph_bytes
from tests.engine.families import VOCAB, wide
from tests.engine.requests import Letters, prompt, request, run

pytestmark = [CPU_ONLY, pytest.mark.slow]


class Oracle:
    """Drafts from replies that are known, with a wrong token here and there; the rest of the engine is the real one."""

    def __init__(self, engine: GraphEngine, replies: dict[int, list[int]], wrong: int = 0) -> None:
        assert engine.index is not None
        self.table, self.replies, self.wrong = engine.replies, replies, wrong
        engine.judge.count = lambda **_: None  # type: ignore[method-assign]
        engine.index.propose = self.propose  # type: ignore[method-assign]

    def propose(self, slots: np.ndarray, most: int) -> np.ndarray:
        drafts = np.full((len(slots), most), NONE)
        for row, slot in zip(drafts, slots.tolist(), strict=True):
            session = self.table.sessions[slot]
            assert session is not None
            seen = int(self.table._seen[slot])
            known = self.replies[session.name][seen : seen + most]
            row[: len(known)] = known
            if self.wrong and len(known) >= self.wrong:
                row[self.wrong - 1] = (row[self.wrong - 1] + 1) % VOCAB
        return drafts


def plain_replies(model, requests):
    return run(NativeEngine(model, Letters()), requests)


def tokens_of(done) -> dict[int, list[int]]:
    return {session: completion.token_ids for session, completion in done.items()}


def assert_same(done, expected) -> None:
    for number, completion in done.items():
        assert completion.token_ids == expected[number].token_ids
        assert completion.stop_reason == expected[number].stop_reason
        assert completion.logprobs == pytest.approx(expected[number].logprobs, abs=1e-4)
        assert completion.entropies == pytest.approx(expected[number].entropies, abs=1e-4)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("wrong", [0, 3])
def test_drafts_change_the_number_of_launches_and_nothing_else(family, wrong):
    model = wide(family)
    contexts = {0: prompt(5), 1: prompt(61, seed=1), 2: prompt(61, seed=1)}  # replies cross the end of a page
    requests = [request(s, ids, seed=s, temperature=(1.0, 0.7, 0.0)[s], max_tokens=14) for s, ids in contexts.items()]
    expected = plain_replies(model, requests)
    engine = GraphEngine(model, max_num_seqs=3, max_model_len=128, drafts=True)
    Oracle(engine, tokens_of(expected), wrong)
    assert_same(run(engine, requests), expected)
    # The first token comes with the prompt. Right drafts: 8 more with one launch and 5 with the next.
    assert engine.counts.launches == (5 if wrong else 2)
    assert engine.counts.accepted == (engine.counts.drafted if not wrong else 3 * (13 - 5))


def test_a_stop_or_the_limit_inside_a_draft_ends_a_reply_and_the_next_turn_is_right():
    model = wide("qwen2")
    contexts = {0: prompt(5), 1: prompt(7, seed=1), 2: prompt(7, seed=1)}
    free = plain_replies(model, [request(s, ids, seed=s, max_tokens=14) for s, ids in contexts.items()])
    stops = {0: (free[0].token_ids[4],), 1: (), 2: ()}
    string = Letters().decode(free[2].token_ids[3:5])[-2:]
    plain = NativeEngine(model, Letters())
    engine = GraphEngine(model, Letters(), max_num_seqs=3, max_model_len=128, drafts=True)
    Oracle(engine, tokens_of(free))
    requests = [
        request(
            s,
            ids,
            seed=s,
            max_tokens=(14, 6, 14)[s],
            stop_token_ids=stops[s],
            stop_strings=(string,) if s == 2 else (),
        )
        for s, ids in contexts.items()
    ]
    expected = run(plain, requests)
    assert [expected[s].stop_reason for s in range(3)] == [
        StopReason.STOP_TOKEN,
        StopReason.LENGTH,
        StopReason.STOP_STRING,
    ]
    done = run(engine, requests)
    assert_same(done, expected)
    assert engine.counts.accepted > 0
    again = [request(s, [*ids, *done[s].token_ids, 4, 5], seed=9 + s, max_tokens=3) for s, ids in contexts.items()]
    assert_same(run(engine, again), run(plain, again))
    assert engine.num_prefilled == plain.num_prefilled


def test_a_session_released_during_a_check_leaves_the_others_alone():
    model = wide("qwen2")
    requests = [request(s, prompt(5 + s, seed=s), seed=s, max_tokens=12) for s in range(3)]
    expected = plain_replies(model, requests)
    engine = GraphEngine(
        model, max_num_seqs=2, max_model_len=128, drafts=True
    )  # the third waits, and takes over the slot
    Oracle(engine, tokens_of(expected), wrong=2)
    for each in requests:
        engine.submit(each)
    engine.step()
    assert engine._pending[0].is_check
    engine.release(0)
    done = {}
    while len(done) < 2:
        done |= {completion.session: completion for completion in engine.step()}
    assert_same(done, {1: expected[1], 2: expected[2]})
    engine.release(1)
    engine.release(2)
    assert engine.runner.pages.num_held == 0


def test_truncated_replies_are_decoded_without_drafts():
    model = wide("qwen2")
    requests = [request(0, prompt(5), seed=1, top_k=5), request(1, prompt(5, seed=1), seed=2)]
    expected = plain_replies(model, requests)
    engine = GraphEngine(model, max_num_seqs=2, max_model_len=128, drafts=True)
    Oracle(engine, tokens_of(expected))
    assert_same(run(engine, requests), expected)
    assert engine.counts.checks == 0


def test_what_a_sibling_said_is_drafted_and_every_rollout_starts_from_the_same_state():
    model = wide("qwen2")
    first, second = (request(s, prompt(9), seed=s, temperature=0.0, max_tokens=8) for s in range(2))
    expected = plain_replies(model, [first, second])
    engine = GraphEngine(model, max_num_seqs=1, max_model_len=64, drafts=True)
    numbers = []
    for _ in range(2):
        assert_same(run(engine, [first]) | run(engine, [second]), expected)
        engine.end_rollout()
        numbers.append(engine.metrics())
    assert numbers[0] == numbers[1]
    assert numbers[0]["rollout/draft_acceptance"] > 0.5
    assert numbers[0]["rollout/decode_launches"] < 2 * 7


def test_what_is_logged_is_of_all_processes_together():
    """Two processes that did the same: twice the counts, and the same shares."""
    model = wide("qwen2")
    reply = request(0, prompt(9), temperature=0.0, max_tokens=8)
    engine = GraphEngine(model, max_num_seqs=1, max_model_len=64, drafts=True)
    Oracle(engine, tokens_of(plain_replies(model, [reply])))
    run(engine, [reply])
    engine.end_rollout()
    alone, both = engine.metrics(), engine.metrics(lambda counts: {name: 2 * count for name, count in counts.items()})
    shares = {"rollout/draft_acceptance", "rollout/draft_tokens_per_launch"}
    assert both == {name: number if name in shares else 2 * number for name, number in alone.items()}


def test_the_estimate_of_memory_knows_the_logits_of_a_check():
    model = wide("qwen2")
    for slots in (1, 5, 20, 32, 48, 130):
        rows, estimates = [], []
        for drafts in (False, True):
            runner = GraphEngine(model, max_num_seqs=slots, max_model_len=64, drafts=drafts).runner
            rows.append(0 if runner._verify_logits is runner.logits else len(runner._verify_logits))
            estimates.append(graph_bytes(model.config, pass_tokens=64, num_slots=slots, drafts=drafts))
        assert rows == [0, 0 if slots >= 128 else 8 * min(slots, 16)]
        assert estimates[1] - estimates[0] == 2 * rows[1] * model.config.vocab_size


def test_without_drafts_there_is_no_index_and_nothing_is_logged():
    engine = GraphEngine(wide("qwen2"), max_num_seqs=1, max_model_len=64, drafts=False)
    assert not GraphEngine(wide("qwen2"), max_num_seqs=1, max_model_len=64).has_drafts, "as in config/base.yaml"
    run(engine, [request(0, prompt(3), max_tokens=2)])
    engine.end_rollout()
    assert engine.index is None
    assert engine.metrics() == {}
