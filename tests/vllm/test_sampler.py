"""The logits processor beside plain sampling, as vLLM's batch changes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("vllm")

from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from ragen.engine.base import SamplingParams
from ragen.engine.sampling import BatchParams, noise_keys, sample
from ragen.engine.vllm.sampler import ENTROPIES, NoiseSampler

pytestmark = pytest.mark.vllm
PARAMS = SamplingParams(max_tokens=9, temperature=0.7)


def sampler() -> NoiseSampler:
    return NoiseSampler(None, torch.device("cpu"), False)


def added(index: int, reply: int, token_ids: list[int], forced: tuple[int, ...] = ()):
    extra = {"reply": reply, "params": PARAMS, "seed": 100 + reply, "forced": list(forced)}
    return index, SimpleNamespace(extra_args=extra), None, token_ids


def update(batch_size: int, *, removed=(), added=(), moved=()) -> BatchUpdate:
    return BatchUpdate(batch_size=batch_size, removed=removed, added=added, moved=moved)


def replies(processor: NoiseSampler) -> dict[int, int]:
    return {index: row.reply for index, row in sorted(processor.rows.items())}


def test_what_is_left_of_the_logits_is_the_drawn_token_and_its_logprob():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    tokens, logprobs, entropies = sample(
        logits, BatchParams([PARAMS] * 2, logits.device), noise_keys([101, 102], [0, 3])
    )
    processor = sampler()
    processor.update_state(update(2, added=[added(0, 1, []), added(1, 2, [7, 8, 9])]))
    left = processor.apply(logits.clone())
    assert left.argmax(dim=1).tolist() == tokens.tolist()
    assert left.max(dim=1).values.tolist() == logprobs.tolist()
    assert left.isfinite().sum().item() == 2
    assert ENTROPIES.pop(1) == entropies[:1].tolist()
    assert ENTROPIES.pop(2) == entropies[1:].tolist()


def test_a_forced_token_is_scored_at_temperature_one():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1))
    processor = sampler()
    processor.update_state(update(1, added=[added(0, 3, [], forced=(4,))]))
    left = processor.apply(logits.clone())
    assert left.argmax().item() == 4
    assert left[0, 4].item() == torch.log_softmax(logits[0], dim=-1)[4].item()
    ENTROPIES.pop(3)


def test_rows_follow_what_vllm_does_to_its_batch():
    processor = sampler()
    processor.update_state(update(3, added=[added(i, 10 + i, []) for i in range(3)]))
    processor.update_state(update(3, moved=[(0, 2, MoveDirectionality.SWAP)]))
    assert replies(processor) == {0: 12, 1: 11, 2: 10}
    processor.update_state(update(2, removed=[0], moved=[(2, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    assert replies(processor) == {0: 10, 1: 11}
    processor.update_state(update(2, removed=[1], added=[added(1, 13, [])]))
    assert replies(processor) == {0: 10, 1: 13}
    processor.update_state(None)
    assert replies(processor) == {0: 10, 1: 13}
