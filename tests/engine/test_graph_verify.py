"""Drafts in the graph engine, its kernels run by Triton's interpreter: the tokens are those of plain decoding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.base import StopReason
from ragen.engine.drafts import NONE, NUM_TRIALS
from ragen.engine.graph.engine import GraphEngine
from ragen.engine.graph.verify import columns
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import wide
from tests.engine.requests import Letters, prompt, request, run

pytestmark = [CPU_ONLY, pytest.mark.slow]


class Oracle:
    """Drafts from replies that are known, with a wrong token here and there; the rest of the engine is the real one."""

    def __init__(self, engine: GraphEngine, replies: dict[int, list[int]], wrong: int = 0) -> None:
        self.engine, self.replies, self.wrong = engine, replies, wrong
        self.num_checked = 0
        engine.judge.count = lambda **_: None  # type: ignore[method-assign]
        engine.replies.propose = self.propose  # type: ignore[method-assign]

    def propose(self, slots: np.ndarray, most: int) -> np.ndarray:
        table, drafts = self.engine.replies, np.full((len(slots), most), NONE)
        for row, slot in zip(drafts, slots.tolist(), strict=True):
            session = table.sessions[slot]
            assert session is not None
            seen = int(table._seen[slot])
            known = self.replies[session.name][seen : session.request.params.max_tokens - 1][:most]
            row[: len(known)] = known
            if self.wrong and len(known) >= self.wrong:
                row[self.wrong - 1] = (row[self.wrong - 1] + 1) % 97
        self.num_checked += int((drafts != NONE).sum())
        return drafts


def plain_replies(model, requests):
    return run(NativeEngine(model, Letters()), requests)


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
    requests = [
        request(s, ids, seed=s, temperature=(1.0, 0.7, 0.0)[s], max_tokens=14) for s, ids in contexts.items()
    ]
    expected = plain_replies(model, requests)
    engine = GraphEngine(model, max_num_seqs=4)
    oracle = Oracle(engine, {s: completion.token_ids for s, completion in expected.items()}, wrong)
    assert_same(run(engine, requests), expected)
    assert oracle.num_checked > 20
    # The first token comes with the prompt. Right drafts: 8 more with one launch and 5 with the next.
    assert engine.counts.launches == (5 if wrong else 2)
    assert engine.counts.accepted == (engine.counts.drafted if not wrong else 3 * (13 - 5))
