"""Drafts on a GPU. Run there: pytest -q -m gpu tests/gpu/test_drafts_cuda.py"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.requests import prompt, request, run
from tests.gpu.test_engine_cuda import engine_of, wide_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NUM_SESSIONS, NUM_TOKENS = 24, 80


def played(model: Any, *, drafts: bool, temperature: float) -> tuple[list[Any], Any]:
    """Replies of three waves of sessions, and the engine. The second says what the first said, so drafts are right."""
    engine = engine_of(model, drafts=drafts, max_num_seqs=40, max_model_len=1024, max_num_batched_tokens=512)
    done = []
    for wave, first_seed in enumerate((0, 0, 500)):
        requests = [
            request(
                100 * wave + session,
                prompt(30 + 9 * session, seed=session // 8),
                seed=first_seed + session,
                temperature=temperature,
                max_tokens=NUM_TOKENS - session,
            )
            for session in range(NUM_SESSIONS)
        ]
        replies = run(engine, requests)
        done += [replies[session] for session in sorted(replies)]
    return done, engine


@pytest.mark.parametrize("family", ["qwen2", "qwen2_seven_heads", "qwen3", "smollm2_three_heads"])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_tokens_are_those_of_plain_decoding_but_for_ties(family, temperature):
    model = wide_model(family)
    plain, _ = played(model, drafts=False, temperature=temperature)
    drafted, engine = played(model, drafts=True, temperature=temperature)
    assert engine.counts.accepted > 50, "nothing to see: no draft was right"
    num_same, errors, gaps = 0, [], []
    for ours, theirs in zip(drafted, plain, strict=True):
        pairs = zip(ours.token_ids, theirs.token_ids, strict=True)
        shared = next((i for i, (one, other) in enumerate(pairs) if one != other), len(ours.token_ids))
        errors += (torch.tensor(ours.logprobs[:shared]) - torch.tensor(theirs.logprobs[:shared])).abs().tolist()
        if shared == len(ours.token_ids):
            num_same += 1
        else:
            gaps.append(abs(ours.logprobs[shared] - theirs.logprobs[shared]))
    print(f"{family}, T={temperature}: {len(plain) - num_same} of {len(plain)} replies differ, {engine.counts}")
    # A batch of another size rounds differently, too: tests/gpu/test_engine_cuda.py has the same bound.
    bound = 0.1 * max(1.0, 1 / (temperature or 1.0))
    assert max(errors) < bound
    assert sum(errors) / len(errors) < 0.2 * bound
    if temperature == 0:
        assert max(gaps, default=0.0) < bound, "greedy replies part at something else than a tie"
    # Random weights have flat logits, and so many ties: on an H200 half of these replies of up to 80 tokens met one.
    assert num_same > 0.4 * len(plain)


def test_a_seed_gives_the_same_replies_and_log_probs_again():
    model = wide_model("qwen2")
    first, second = (played(model, drafts=True, temperature=0.3)[0] for _ in range(2))
    assert [(c.token_ids, c.logprobs) for c in first] == [(c.token_ids, c.logprobs) for c in second]
