"""The graph engine on a CPU, its kernels run by Triton's interpreter: slow, but equal to the plain engine."""

from __future__ import annotations

import pytest

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.engine.graph.engine import GraphEngine
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import wide
from tests.engine.requests import prompt, request, run

pytestmark = [CPU_ONLY, pytest.mark.slow]


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral"])
def test_replies_equal_those_of_the_plain_engine_over_two_turns(family):
    model = wide(family)
    engine, plain = GraphEngine(model, max_num_seqs=4, max_num_batched_tokens=48), NativeEngine(model)
    contexts = {0: prompt(5), 1: prompt(66, seed=1), 2: prompt(66, seed=1)}
    for turn in range(2):
        requests = [
            request(s, ids, seed=10 * turn + s, temperature=(1.0, 0.7, 0.0)[s], max_tokens=3)
            for s, ids in contexts.items()
        ]
        done, expected = run(engine, requests), run(plain, requests)
        for number, completion in done.items():
            assert completion.token_ids == expected[number].token_ids
            assert completion.logprobs == pytest.approx(expected[number].logprobs, abs=1e-4)
            assert completion.entropies == pytest.approx(expected[number].entropies, abs=1e-4)
            contexts[number] = [*contexts[number], *completion.token_ids, 4, 5]
    assert engine.num_prefilled == plain.num_prefilled
