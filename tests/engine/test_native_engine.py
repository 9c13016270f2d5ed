"""The native engine against its slow, obvious twins: generate and a plain forward pass."""

from __future__ import annotations

import pytest
import torch

from ragen.engine.base import StopReason
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import FAMILIES, random_model
from tests.engine.requests import Letters, forward_entropies, forward_logprobs, prompt, request, run


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_replies_equal_generate(family):
    model = random_model(family)
    prompts = [prompt(n, seed=n) for n in (3, 12, 25, 1)]
    done = run(NativeEngine(model), [request(i, ids, temperature=0, max_tokens=12) for i, ids in enumerate(prompts)])
    for i, ids in enumerate(prompts):
        expected = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False, max_new_tokens=12,
            min_new_tokens=12, eos_token_id=None, pad_token_id=0,
        )[0, len(ids) :]  # fmt: skip
        assert done[i].token_ids == expected.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_logprobs_equal_a_plain_forward_pass_over_several_turns(family):
    model = random_model(family)
    engine = NativeEngine(model, max_num_batched_tokens=40)
    contexts = {session: prompt(5 + 3 * session, seed=session) for session in range(4)}
    for turn in range(3):
        requests = [request(s, ids, seed=100 * turn + s, temperature=0.7) for s, ids in contexts.items()]
        for session, completion in run(engine, requests).items():
            ids = contexts[session] + completion.token_ids
            expected = forward_logprobs(model, ids, len(contexts[session]), temperature=0.7)
            assert completion.logprobs == pytest.approx(expected, abs=2e-5)
            entropies = forward_entropies(model, ids, len(contexts[session]), temperature=0.7)
            assert completion.entropies == pytest.approx(entropies, abs=1e-5)
            contexts[session] = ids + prompt(4, seed=turn)


def test_a_new_turn_costs_only_its_new_tokens():
    engine = NativeEngine(random_model("qwen2"))
    ids = prompt(30)
    reply = run(engine, [request(7, ids)])[7].token_ids
    assert engine.num_prefilled == 30
    run(engine, [request(7, ids + reply + [5, 6, 7])])
    # The last sampled token was never fed, so it is computed with the new ones.
    assert engine.num_prefilled == 30 + 1 + 3


def test_a_prompt_shared_by_a_group_is_computed_once():
    engine = NativeEngine(random_model("llama"))
    done = run(engine, [request(member, prompt(20), seed=member) for member in range(8)])
    assert engine.num_prefilled == 20
    assert len({tuple(done[member].token_ids) for member in range(8)}) > 1


def test_a_context_that_lost_its_oldest_turns_is_computed_again_from_where_it_differs():
    model = random_model("qwen2")
    engine = NativeEngine(model)
    first = prompt(20, seed=1)
    run(engine, [request(0, first)])
    shorter = first[:4] + prompt(6, seed=2)
    completion = run(engine, [request(0, shorter)])[0]
    expected = forward_logprobs(model, shorter + completion.token_ids, len(shorter))
    assert completion.logprobs == pytest.approx(expected, abs=1e-5)
    assert engine.num_prefilled == 20 + 6


def test_a_reply_does_not_depend_on_its_neighbours():
    model = random_model("qwen2")
    alone = run(NativeEngine(model), [request(3, prompt(9, seed=3), seed=33)])[3]
    crowd = [request(s, prompt(4 + 2 * s, seed=s), seed=11 * s, max_tokens=3 + s) for s in range(8) if s != 3]
    together = run(NativeEngine(model, max_num_seqs=5), [*crowd, request(3, prompt(9, seed=3), seed=33)])[3]
    assert together.token_ids == alone.token_ids
    assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_more_sessions_than_rows_wait_and_idle_ones_make_way():
    model = random_model("qwen2")
    engine = NativeEngine(model, max_num_seqs=2)
    contexts = {session: prompt(6, seed=session) for session in range(5)}
    for turn in range(2):
        done = run(engine, [request(s, ids, seed=s + 10 * turn) for s, ids in contexts.items()])
        for session, completion in done.items():
            ids = contexts[session] + completion.token_ids
            assert completion.logprobs == pytest.approx(forward_logprobs(model, ids, len(contexts[session])), abs=1e-5)
            contexts[session] = [*ids, 4]


def test_released_rows_are_filled_by_the_last_session():
    model = random_model("qwen2")
    engine = NativeEngine(model)
    contexts = {session: prompt(5 + session, seed=session) for session in range(4)}
    done = run(engine, [request(s, ids) for s, ids in contexts.items()])
    engine.release(0)
    engine.release(2)
    for session in (1, 3):
        ids = [*contexts[session], *done[session].token_ids, 9]
        before = engine.num_prefilled
        completion = run(engine, [request(session, ids)])[session]
        assert engine.num_prefilled - before == 2
        expected = forward_logprobs(model, ids + completion.token_ids, len(ids))
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)


def test_long_prompts_are_prefilled_in_pieces():
    model = random_model("mistral_sliding_window")
    ids = prompt(50)
    completion = run(NativeEngine(model, max_num_batched_tokens=16), [request(0, ids), request(1, prompt(9))])[0]
    assert completion.logprobs == pytest.approx(forward_logprobs(model, ids + completion.token_ids, 50), abs=1e-5)


def test_a_stop_token_ends_a_reply_and_belongs_to_it():
    model = random_model("qwen2")
    free = run(NativeEngine(model), [request(0, prompt(5), temperature=0)])[0]
    stop = free.token_ids[3]
    done = run(NativeEngine(model), [request(0, prompt(5), temperature=0, stop_token_ids=(stop,))])[0]
    assert done.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert done.stop_reason is StopReason.STOP_TOKEN
    assert free.stop_reason is StopReason.LENGTH


def test_weights_that_change_make_the_cache_go():
    engine = NativeEngine(random_model("qwen2"))
    run(engine, [request(0, prompt(10))])
    engine.end_rollout()
    run(engine, [request(0, prompt(10))])
    assert engine.num_prefilled == 20


def test_the_model_keeps_its_own_attention_and_training_mode():
    model = random_model("qwen2").train()
    before = model.config._attn_implementation
    run(NativeEngine(model), [request(0, prompt(5))])
    assert model.training
    assert model.config._attn_implementation == before


def test_a_request_that_cannot_fit_is_refused_with_the_key_to_change():
    engine = NativeEngine(random_model("qwen2"), max_model_len=20)
    with pytest.raises(Exception, match="max_model_len"):
        engine.submit(request(0, prompt(15), max_tokens=6))


@pytest.mark.parametrize("seed", range(6))
def test_a_reply_ends_with_the_token_that_completes_a_stop_string(seed):
    model, tokenizer = random_model("qwen2"), Letters()
    free = run(NativeEngine(model, tokenizer), [request(0, prompt(5), seed=seed, max_tokens=30)])[0].token_ids
    text = tokenizer.decode(free)
    stop = text[8:11]
    done = run(NativeEngine(model, tokenizer), [request(0, prompt(5), seed=seed, max_tokens=30, stop_strings=(stop,))])
    reply = tokenizer.decode(done[0].token_ids)
    assert done[0].stop_reason is StopReason.STOP_STRING
    assert done[0].token_ids == free[: len(done[0].token_ids)]
    assert stop in reply
    assert stop not in tokenizer.decode(done[0].token_ids[:-1])
