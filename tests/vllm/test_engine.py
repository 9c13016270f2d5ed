"""vLLM against the native engine and a plain forward pass, on the embedded model."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("vllm")

from ragen.config.load import load_config
from ragen.engine.base import Completion, Engine, ModelSource, Request, SamplingParams, StopReason
from ragen.engine.native.engine import NativeEngine
from ragen.engine.vllm.engine import VllmEngine
from ragen.engine.vllm.sampler import ENTROPIES
from ragen.errors import ConfigError, EngineError
from ragen.modeling.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model
from ragen.workers.local import text_logprobs

pytestmark = pytest.mark.vllm

PATH = resolve_model("tiny", env_types=["frozen_lake"])
TOKENIZER = load_tokenizer(PATH)
MODEL = load_model(PATH, device="cpu")
SAMPLING = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "cold": {"temperature": 0.6},
    "cut": {"temperature": 1.3, "top_p": 0.8, "top_k": 20},
}


def vllm_engine(path: Path | str = PATH, executor: str | None = None, **changes) -> VllmEngine:
    rollout = replace(load_config("base").actor_rollout_ref.rollout, name="vllm", **changes)
    source = ModelSource(path=path, tokenizer=load_tokenizer(path), device="cpu")
    return VllmEngine(rollout, source, executor=executor)


@pytest.fixture(scope="module")
def shared_engine():
    engine = vllm_engine(max_model_len=1024, max_num_batched_tokens=256)
    yield engine
    engine.close()


@pytest.fixture
def engine(shared_engine: VllmEngine):
    """The engine with the weights of the folder, whatever a test did to them."""
    yield shared_engine
    shared_engine.load_weights(MODEL.state_dict, lambda ids: text_logprobs(MODEL, ids))


def prompt(words: int) -> list[int]:
    return TOKENIZER.encode("Go right, then down. " * words + "\nAnswer: ", add_special_tokens=False)


def request(session: int, ids: Sequence[int], seed: int = 0, **params) -> Request:
    return Request(
        session=session, prompt_ids=ids, params=SamplingParams(**{"max_tokens": 30} | params), seed=2**63 + seed
    )


def run(engine: Engine, requests: list[Request]) -> dict[int, Completion]:
    """Submit all, step until all are done; completions by session."""
    for one in requests:
        engine.submit(one)
    done = {}
    while len(done) < len(requests):
        done |= {completion.session: completion for completion in engine.step()}
    return done


def changed_model(scale: float):
    """The embedded model with noise on every weight."""
    model = deepcopy(MODEL)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += scale * weight.std() * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.parametrize("kind", SAMPLING)
def test_replies_equal_those_of_the_native_engine(engine, kind):
    params = SAMPLING[kind] | {"stop_strings": ("</answer>",), "stop_token_ids": (257,)}
    requests = [request(i, prompt(1 + i), seed=7919 * i, **params) for i in range(12)]
    ours, theirs = run(engine, requests), run(NativeEngine(MODEL, TOKENIZER), requests)
    for i in range(12):
        assert ours[i].token_ids == theirs[i].token_ids
        assert ours[i].stop_reason == theirs[i].stop_reason
        assert ours[i].logprobs == pytest.approx(theirs[i].logprobs, abs=1e-4)
        assert ours[i].entropies == pytest.approx(theirs[i].entropies, abs=1e-4)


def test_replies_end_where_they_should(engine):
    free = run(engine, [request(0, prompt(3), seed=5)])[0]
    assert free.stop_reason is StopReason.LENGTH and len(free.token_ids) == 30
    token = free.token_ids[11]
    stopped = run(engine, [request(0, prompt(3), seed=5, stop_token_ids=(token,))])[0]
    first = free.token_ids.index(token)
    assert stopped.stop_reason is StopReason.STOP_TOKEN and stopped.token_ids == free.token_ids[: first + 1]
    text = TOKENIZER.decode(free.token_ids[4:7])
    stopped = run(engine, [request(0, prompt(3), seed=5, stop_strings=(text,))])[0]
    assert stopped.stop_reason is StopReason.STOP_STRING
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert text in TOKENIZER.decode(stopped.token_ids)
    assert text not in TOKENIZER.decode(stopped.token_ids[:-1])


def test_logprobs_are_those_of_the_temperature_before_any_cut(engine):
    ids = prompt(4)
    reply = run(engine, [request(0, ids, seed=1, temperature=0.7, top_p=0.5, top_k=3)])[0]
    with torch.no_grad():
        logits = MODEL(torch.tensor([ids + reply.token_ids])).logits[0, len(ids) - 1 : -1] / 0.7
    expected = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
    assert reply.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_prompt_that_is_read_in_pieces_leaves_one_entropy_for_each_token(engine):
    requests = [request(i, prompt(30 + i), seed=i, max_tokens=5 + i) for i in range(4)]
    assert all(len(one.prompt_ids) > 256 for one in requests)
    ours, theirs = run(engine, requests), run(NativeEngine(MODEL, TOKENIZER), requests)
    for i in range(4):
        assert len(ours[i].entropies) == len(ours[i].token_ids) == 5 + i
        assert ours[i].entropies == pytest.approx(theirs[i].entropies, abs=1e-4)


def test_a_reply_follows_from_its_seed_and_not_from_its_neighbours(engine):
    one = request(3, prompt(2), seed=33)
    alone = run(engine, [one])[3]
    crowd = [request(s, prompt(1 + s), seed=s, max_tokens=5 + 3 * s) for s in range(20) if s != 3]
    together = run(engine, [*crowd, one])[3]
    assert together.token_ids == alone.token_ids
    assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert run(engine, [request(3, prompt(2), seed=34)])[3].token_ids != alone.token_ids


def test_several_turns_keep_their_tokens_and_reuse_the_prefix(engine):
    """vLLM caches whole blocks, of 128 tokens on a CPU."""
    contexts = {session: prompt(10 + session) for session in range(4)}
    native = NativeEngine(MODEL, TOKENIZER)
    for turn in range(3):
        requests = [request(s, ids, seed=100 * turn + s) for s, ids in contexts.items()]
        before = engine.num_prefilled
        ours, theirs = run(engine, requests), run(native, requests)
        num_prompt_tokens = sum(map(len, contexts.values()))
        for session, ids in contexts.items():
            assert ours[session].token_ids == theirs[session].token_ids
            contexts[session] = [*ids, *ours[session].token_ids, *prompt(1)]
        if turn:
            assert engine.num_prefilled - before <= num_prompt_tokens - 4 * 128


def test_what_cannot_be_written_is_refused(engine):
    with pytest.raises(EngineError, match="max_model_len"):
        engine.submit(request(0, prompt(1), max_tokens=1024))
    engine.submit(request(0, prompt(1)))
    with pytest.raises(EngineError, match="already has an open request"):
        engine.submit(request(0, prompt(1)))
    with pytest.raises(EngineError, match=r"sessions \[0\]"):
        engine.end_rollout()
    engine.release(0)
    engine.end_rollout()
    assert run(engine, [request(0, prompt(1))])[0].token_ids


def test_new_weights_arrive_and_old_keys_and_values_do_not_stay(engine):
    requests = [request(i, prompt(20 + i), temperature=0) for i in range(3)]
    before = run(engine, requests)
    model = changed_model(scale=0.5)
    metrics = engine.load_weights(model.state_dict, lambda ids: text_logprobs(model, ids))
    assert metrics["rollout/canary_logprob_diff"] < 1e-5
    after, expected = run(engine, requests), run(NativeEngine(model, TOKENIZER), requests)
    for i in range(3):
        assert after[i].token_ids == expected[i].token_ids
        assert after[i].logprobs == pytest.approx(expected[i].logprobs, abs=1e-4)
    assert any(after[i].token_ids != before[i].token_ids for i in range(3))


def test_the_canary_finds_weights_that_did_not_arrive(engine):
    model = changed_model(scale=0.02)
    stale = {name: tensor.clone() for name, tensor in MODEL.state_dict().items()}
    with pytest.raises(EngineError, match="canary_bound"):
        engine.load_weights(lambda: stale, lambda ids: text_logprobs(model, ids))
    # One layer left out; vLLM itself only logs it.
    kept = {name: tensor for name, tensor in model.state_dict().items() if ".layers.2.mlp" not in name}
    with pytest.raises(EngineError, match="canary_bound"):
        engine.load_weights(lambda: kept, lambda ids: text_logprobs(model, ids))
    with pytest.raises(EngineError, match="nan"):
        engine.load_weights(model.state_dict, lambda ids: torch.full((len(ids) - 1,), np.nan))


def test_released_replies_leave_nothing_in_the_sampler(engine):
    engine.submit(request(0, prompt(1)))
    engine.step()
    engine.step()
    assert len(ENTROPIES) == 1
    engine.release(0)
    assert not ENTROPIES


def test_a_sleeping_engine_wakes_for_new_weights_and_says_what_it_gave_back(engine, monkeypatch):
    """A CPU keeps its memory; what sleep frees on a GPU, benchmarks/engine_vllm.py shows."""
    monkeypatch.setattr(engine, "can_sleep", True)
    expected = run(engine, [request(0, prompt(2), seed=4)])[0]
    engine.end_rollout()
    assert engine._is_asleep
    metrics = engine.load_weights(MODEL.state_dict, lambda ids: text_logprobs(MODEL, ids))
    assert not engine._is_asleep
    assert metrics["rollout/sleep_freed_gb"] == 0
    assert run(engine, [request(0, prompt(2), seed=4)])[0].token_ids == expected.token_ids


@pytest.mark.parametrize("call", ["sleep", "wake_up", "reset_prefix_cache"])
def test_a_process_of_vllm_that_died_between_rollouts_is_named(engine, monkeypatch, call):
    def fail(*_, **__):
        raise RuntimeError("cancelled")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "can_sleep", True)
        patched.setattr(engine, "processes", {2**30})
        patched.setattr(engine.engine, call, fail)
        with pytest.raises(EngineError, match=f"vLLM's process {2**30} died"):
            engine.end_rollout()
            engine._wake()


@pytest.mark.timeout(300)
def test_a_killed_process_of_vllm_is_named():
    engine = vllm_engine(executor="mp", max_model_len=1024)
    one = request(0, prompt(2), seed=3)
    completion, expected = run(engine, [one])[0], run(NativeEngine(MODEL, TOKENIZER), [one])[0]
    assert completion.token_ids == expected.token_ids
    assert completion.entropies == pytest.approx(expected.entropies, abs=1e-4)
    (process,) = engine.processes
    engine.submit(one)
    engine.step()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(EngineError, match=f"vLLM's process {process} died"):
        run(engine, [request(1, prompt(3), seed=3)])
    engine.close()


def test_a_context_longer_than_the_model_knows_is_refused():
    with pytest.raises(EngineError, match=r"Lower actor_rollout_ref\.rollout\.max_model_len"):
        vllm_engine(max_model_len=5000)


def test_heads_that_cannot_be_shared_out_are_refused():
    path = resolve_model("tiny", env_types=["sokoban"])
    with pytest.raises(EngineError, match=r"heads \(3\) .* Change .*\.tensor_model_parallel_size"):
        vllm_engine(path, max_model_len=1024, tensor_model_parallel_size=2)


def test_a_machine_without_enough_gpus_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="tensor_model_parallel_size is 2"):
        vllm_engine(tensor_model_parallel_size=2)
