"""The graph engine on a GPU. Run there: pytest -q -m gpu tests/gpu/test_engine_cuda.py"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from ragen.engine.base import StopReason
from ragen.engine.native.build import native_engine
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import SHAPE, random_model
from tests.engine.requests import forward_entropies, prompt, request, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDE = SHAPE | {
    "hidden_size": 256,
    "intermediate_size": 512,
    "initializer_range": 0.08,
    "max_position_embeddings": 2048,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "qwen2": lambda: Qwen2Config(**WIDE | {"num_attention_heads": 8}, tie_word_embeddings=True),
    "qwen2_seven_heads": lambda: Qwen2Config(
        **WIDE | {"hidden_size": 448, "num_attention_heads": 7, "num_key_value_heads": 1}
    ),
    "qwen3": lambda: Qwen3Config(**WIDE, head_dim=128),
    "llama": lambda: LlamaConfig(**WIDE, rope_parameters=LLAMA3_ROPE),
    "mistral": lambda: MistralConfig(**WIDE, sliding_window=None),
    "smollm2_three_heads": lambda: LlamaConfig(
        **WIDE | {"hidden_size": 384, "num_attention_heads": 6, "num_key_value_heads": 2}
    ),
}


def wide_model(family: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=dtype)
    for weight in model.parameters():
        if weight.dim() == 1:  # biases of 0 and gains of 1 would hide mistakes
            weight.data += 0.2 * torch.randn_like(weight)
    return model.cuda().eval()


def engine_of(model: Any, **options: Any) -> Any:
    engine = native_engine(model, **options)
    assert not isinstance(engine, NativeEngine)
    return engine


def forward_logprobs(model: Any, ids: list[int], start: int, temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of ids[start:] by one plain forward pass of the model itself."""
    with torch.no_grad():
        logits = model(torch.tensor([ids], device="cuda")).logits[0].float() / temperature
    chosen = torch.tensor(ids[start:], device="cuda")
    return torch.log_softmax(logits[start - 1 : -1], dim=-1).gather(1, chosen[:, None])[:, 0].cpu()


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_agree_with_a_plain_forward_pass_over_three_turns(family):
    model = wide_model(family)
    exact = copy.deepcopy(model).float()
    engine = engine_of(model, max_num_seqs=40, max_model_len=1024, max_num_batched_tokens=512)
    contexts = {session: prompt(5 + 17 * session, seed=session) for session in range(24)}
    contexts |= {session: prompt(333, seed=99) for session in range(24, 32)}  # a group
    for turn in range(3):
        requests = [
            request(s, ids, seed=100 * turn + s, temperature=(1.0, 0.7)[s % 2], max_tokens=20 + s % 5)
            for s, ids in contexts.items()
        ]
        done = run(engine, requests)
        ours, plain, of_engine, of_model = [], [], [], []
        for session, completion in done.items():
            ids, start, temperature = (
                contexts[session] + completion.token_ids,
                len(contexts[session]),
                (1.0, 0.7)[session % 2],
            )
            assert len(completion.token_ids) == 20 + session % 5
            expected = forward_logprobs(exact, ids, start, temperature)
            ours.append((torch.tensor(completion.logprobs) - expected).abs())
            plain.append((forward_logprobs(model, ids, start, temperature) - expected).abs())
            entropies = torch.tensor(forward_entropies(exact, ids, start, temperature))
            of_engine.append((torch.tensor(completion.entropies) - entropies).abs())
            of_model.append((torch.tensor(forward_entropies(model, ids, start, temperature)) - entropies).abs())
            contexts[session] = ids + prompt(30, seed=turn)
        # As near to the exact numbers as bfloat16 comes anyway.
        assert torch.cat(ours).mean() < 1.2 * torch.cat(plain).mean(), f"turn {turn}"
        assert torch.cat(ours).max() < 2 * torch.cat(plain).max(), f"turn {turn}"
        assert torch.cat(of_engine).mean() < 1.2 * torch.cat(of_model).mean(), f"turn {turn}"
        assert torch.cat(of_engine).max() < 2 * torch.cat(of_model).max(), f"turn {turn}"
        assert len({tuple(done[s].token_ids) for s in range(24, 32)}) == 8


@pytest.mark.parametrize("num_sessions", [40, 120, 300, 600])
def test_logprobs_of_large_batches_agree_with_a_plain_forward_pass(num_sessions):
    model = wide_model("qwen2")
    exact = copy.deepcopy(model).float()
    engine = engine_of(model, max_num_seqs=num_sessions, max_model_len=256, max_num_batched_tokens=4096)
    prompts = {session: prompt(5 + session % 140, seed=session) for session in range(num_sessions)}
    done = run(engine, [request(s, ids, seed=s, max_tokens=12) for s, ids in prompts.items()])
    ours, plain = [], []
    for session in range(0, num_sessions, 10):
        ids, start = prompts[session] + done[session].token_ids, len(prompts[session])
        expected = forward_logprobs(exact, ids, start)
        ours.append((torch.tensor(done[session].logprobs) - expected).abs())
        plain.append((forward_logprobs(model, ids, start) - expected).abs())
    assert torch.cat(ours).mean() < 1.3 * torch.cat(plain).mean()
    assert torch.cat(ours).max() < 2.5 * torch.cat(plain).max()


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_greedy_replies_follow_the_models_own_choice(family):
    model = wide_model(family)
    prompts = [prompt(n, seed=n) for n in (3, 70, 200, 1)]
    done = run(engine_of(model), [request(i, ids, temperature=0, max_tokens=24) for i, ids in enumerate(prompts)])
    for i, ids in enumerate(prompts):
        with torch.no_grad():
            logits = model(torch.tensor([ids + done[i].token_ids], device="cuda")).logits[0].float()
        ahead = logits[len(ids) - 1 : -1]
        drawn = ahead.gather(1, torch.tensor(done[i].token_ids, device="cuda")[:, None])[:, 0]
        # Where two logits are nearly equal, rounding decides.
        assert (ahead.max(dim=-1).values - drawn).max() < 0.2


def test_sampling_equals_the_cpu_method_on_the_same_logits():
    import numpy as np

    from ragen.engine.base import SamplingParams
    from ragen.engine.sampling import CHUNK, BatchParams, noise_keys, sample
    from ragen.modeling.kernels import sampling, session

    rows, vocab = 300, 151_936
    torch.manual_seed(1)
    logits = (3 * torch.randn(rows, vocab, device="cuda")).bfloat16()
    seeds = np.random.default_rng(0).integers(0, 2**64, rows, dtype=np.uint64)
    counts = np.arange(rows)
    temperatures = np.array([(1.0, 0.6, 0.0)[i % 3] for i in range(rows)])
    state = torch.zeros(rows, session.HEADER, dtype=torch.int64)
    state[:, session.SEED] = torch.from_numpy(seeds.view(np.int64))
    state[:, session.COUNT] = torch.from_numpy(counts)
    state[:, session.TEMPERATURE] = torch.from_numpy(temperatures.view(np.int64))
    state = state.cuda()
    logits[5, :100_000] = -torch.inf  # whole chunks of words that cannot be drawn
    out = torch.full((3, rows), -1, dtype=torch.int32, device="cuda")
    sampling.draw(logits, torch.arange(rows, device="cuda"), state, out, chunk=CHUNK, advance=True)
    params = BatchParams([SamplingParams(max_tokens=1, temperature=t) for t in temperatures], logits.device)
    tokens, logprobs, entropies = sample(logits, params, noise_keys(seeds, counts))
    same = out[0] == tokens
    # Rounding may decide between two tokens that arrive together.
    assert same.float().mean() > 0.99
    assert same[2::3].all()
    assert (out[1].view(torch.float32) - logprobs)[same].abs().max() < 1e-4
    assert (out[2].view(torch.float32) - entropies).abs().max() < 1e-3
    assert torch.equal(state[:, session.TOKEN], out[0].long())
    assert torch.equal(state[:, session.POSITION], torch.ones_like(state[:, 0]))


def test_a_seed_gives_the_same_replies_again():
    model = wide_model("qwen2")
    requests = [request(i, prompt(5 + i, seed=i), seed=i, max_tokens=40) for i in range(20)]
    first = run(engine_of(model), requests)
    engine = engine_of(model)
    for _ in range(2):
        again = run(engine, requests)
        assert {s: (c.token_ids, c.logprobs) for s, c in again.items()} == {
            s: (c.token_ids, c.logprobs) for s, c in first.items()
        }
        engine.end_rollout()


def test_a_reply_hardly_depends_on_its_neighbours():
    model = wide_model("qwen2")
    alone = run(engine_of(model), [request(3, prompt(9, seed=3), seed=33, max_tokens=30)])[3]
    crowd = [request(s, prompt(4 + 20 * s, seed=s), seed=11 * s, max_tokens=3 + s) for s in range(20) if s != 3]
    crowd.append(request(3, prompt(9, seed=3), seed=33, max_tokens=30))
    together = run(engine_of(model, max_num_seqs=5), crowd)[3]
    # Matrix products round differently in other batch sizes; the noise is the same.
    shared = next((i for i in range(30) if together.token_ids[i] != alone.token_ids[i]), 30)
    assert shared >= 5
    assert together.logprobs[:shared] == pytest.approx(alone.logprobs[:shared], abs=0.1)


def test_new_turns_and_group_prompts_cost_only_their_new_tokens():
    engine = engine_of(wide_model("llama"))
    ids = prompt(150)
    done = run(engine, [request(member, ids, seed=member) for member in range(8)])
    assert engine.num_prefilled == 150
    assert engine.runner.pages.num_held == 2 + 8  # 150 tokens: two full pages shared, the third everyone's own
    run(engine, [request(7, ids + done[7].token_ids + [5, 6, 7])])
    assert engine.num_prefilled == 150 + 1 + 3


def test_a_stop_token_ends_a_reply_and_nothing_after_it_is_seen():
    model = wide_model("qwen2")
    free = run(engine_of(model), [request(0, prompt(5), seed=4, max_tokens=40)])[0]
    stop = free.token_ids[11]
    engine = engine_of(model)
    done = run(engine, [request(0, prompt(5), seed=4, max_tokens=40, stop_token_ids=(stop,))])[0]
    assert done.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert done.stop_reason is StopReason.STOP_TOKEN
    ids = [*prompt(5), *done.token_ids, 9, 8]
    completion = run(engine, [request(0, ids, seed=5, max_tokens=40)])[0]
    error = torch.tensor(completion.logprobs) - forward_logprobs(model, ids + completion.token_ids, len(ids))
    assert error.abs().mean() < 0.04


def test_more_sessions_than_slots_wait_and_idle_ones_make_way():
    model = wide_model("qwen2")
    engine = engine_of(model, max_num_seqs=3)
    contexts = {session: prompt(70, seed=session) for session in range(7)}
    for turn in range(2):
        done = run(engine, [request(s, ids, seed=s + 10 * turn) for s, ids in contexts.items()])
        for session, completion in done.items():
            ids = contexts[session] + completion.token_ids
            error = torch.tensor(completion.logprobs) - forward_logprobs(model, ids, len(contexts[session]))
            assert error.abs().mean() < 0.05
            contexts[session] = [*ids, 4]


def test_top_k_and_top_p_cut_the_tail():
    model = wide_model("qwen2")
    greedy = run(engine_of(model), [request(0, prompt(9), temperature=0, max_tokens=12)])[0].token_ids
    engine = engine_of(model)
    done = run(
        engine,
        [
            request(0, prompt(9), seed=1, top_k=1, max_tokens=12),
            request(1, prompt(9), seed=2, top_p=1e-6, max_tokens=12),
        ],
    )
    assert done[0].token_ids[:6] == done[1].token_ids[:6] == greedy[:6]
    assert done[0].logprobs[0] < -0.1  # of the whole distribution, before the cut


def test_updates_of_the_models_weights_are_seen():
    model = wide_model("qwen2")
    engine = engine_of(model)
    run(engine, [request(0, prompt(20))])
    engine.end_rollout()
    assert engine.runner.pages.num_bytes == 0
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight + 0.05 * torch.randn_like(weight))
    completion = run(engine, [request(0, prompt(20), max_tokens=20)])[0]
    error = torch.tensor(completion.logprobs) - forward_logprobs(model, prompt(20) + completion.token_ids, 20)
    assert error.abs().mean() < 0.05


def test_weights_that_moved_are_found_again():
    model = wide_model("llama")
    engine = engine_of(model)
    run(engine, [request(0, prompt(20))])
    engine.end_rollout()
    for weight in model.parameters():
        weight.data = weight.data.clone() * 1.1
    completion = run(engine, [request(0, prompt(20), max_tokens=20)])[0]
    error = torch.tensor(completion.logprobs) - forward_logprobs(model, prompt(20) + completion.token_ids, 20)
    assert error.abs().mean() < 0.05


def test_what_the_graph_engine_cannot_run_takes_the_plain_one():
    assert isinstance(native_engine(wide_model("qwen2"), enforce_eager=True), NativeEngine)
    assert isinstance(native_engine(wide_model("qwen2", torch.float32)), NativeEngine)
    assert isinstance(native_engine(random_model("gemma2_soft_cap", torch.bfloat16).cuda()), NativeEngine)
