"""The parts of the graph engine that need no GPU: pages, plans, stop rules and fused weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ragen.engine.base import SamplingParams, StopReason
from ragen.engine.graph.fused import addresses, fuse, why_not
from ragen.engine.graph.pages import PagePool
from ragen.engine.native.engine import NativeEngine, native_engine
from ragen.engine.prefill import Piece, common_prefix, plan
from ragen.engine.stopping import StopRules
from ragen.modeling.lora import has_adapter
from tests.engine.families import SHAPE, random_model
from tests.engine.test_native import Letters, prompt

CPU = torch.device("cpu")


def wide(family: str, **changes):
    """A random model whose heads are as wide as the kernels need them."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

    classes = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}
    torch.manual_seed(0)
    config = classes[family](**SHAPE | {"head_dim": 32} | changes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


# Pages


def test_a_page_is_free_when_its_last_holder_drops_it():
    pool = PagePool(1024, CPU)
    pages = pool.take(3)
    assert len(set(pages)) == 3
    pool.share(pages[:1])
    pool.drop(pages)
    assert pool.num_held == 1 and not pool.is_shared(pages[0])
    pool.drop(pages[:1])
    assert pool.num_held == 0


def test_memory_grows_by_segments_and_goes_when_asked(monkeypatch):
    monkeypatch.setattr("ragen.engine.graph.pages.SEGMENT_BYTES", 4096)
    pool = PagePool(1024, CPU)
    first = pool.take(3)
    assert pool.num_bytes == 4096
    assert not set(first) & set(pool.take(6))
    assert pool.num_bytes == 4096 + 5 * 1024  # one page was left, five more were needed
    pool.clear(free_memory=False)
    assert (pool.num_held, pool.num_free) == (0, 9)
    pool.clear(free_memory=True)
    assert (pool.num_bytes, pool.num_free) == (0, 0)


# Plans


def test_prompts_fill_a_pass_and_go_on_in_the_next():
    assert plan([20, 50], 64, block=16) == [[Piece(0, 0, 20), Piece(1, 0, 32)], [Piece(1, 32, 50)]]


@pytest.mark.parametrize("budget", [16, 100, 1000])
def test_every_token_is_planned_once_and_no_pass_is_too_large(budget):
    lengths = [1, 16, 17, 300, 5, 64]
    passes = plan(lengths, budget, block=16)
    planned = [
        [i for one in passes for p in one if p.index == index for i in range(p.start, p.stop)] for index in range(6)
    ]
    assert planned == [list(range(length)) for length in lengths]
    assert max(sum(piece.padded(16) for piece in one) for one in passes) <= budget


def test_the_common_prefix_of_two_contexts():
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 4, 5]) == 2
    assert common_prefix([], [1]) == 0


# Stop rules


def test_the_quick_test_lets_no_end_pass():
    rules = StopRules(Letters(), vocab=97)
    params = SamplingParams(max_tokens=5, stop_token_ids=(3,), stop_strings=("ab",))
    index = rules.index(params)
    assert rules.index(SamplingParams(max_tokens=9, stop_token_ids=(3,), stop_strings=("ab",))) == index
    other = rules.index(SamplingParams(max_tokens=5))
    tokens = np.array([3, 1, 4, 3])  # the letters d, b, e, d
    assert rules.may_end(np.array([index, index, index, other]), tokens).tolist() == [True, True, False, False]
    assert rules.reason(params, [3]) is StopReason.STOP_TOKEN
    assert rules.reason(params, [5, 0, 1]) is StopReason.STOP_STRING
    assert rules.reason(params, [5, 2, 1]) is None
    assert rules.reason(params, [5, 5, 5, 5, 5]) is StopReason.LENGTH


# Weights


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_fused_weights_are_the_models_own(family):
    model = wide(family, tie_word_embeddings=True)
    ids = torch.tensor([prompt(9)])
    before = model(ids).logits
    decoder = fuse(model)
    assert torch.equal(model(ids).logits, before)
    attention = model.model.layers[1].self_attn
    with torch.no_grad():  # as an optimizer does
        attention.k_proj.weight.copy_(torch.full_like(attention.k_proj.weight, 7.0))
    start = len(attention.q_proj.weight)
    assert (decoder.layers[1].qkv[start : start + len(attention.k_proj.weight)] == 7).all()
    assert decoder.head.data_ptr() == decoder.embedding.data_ptr()


def test_fusing_twice_moves_nothing():
    model = wide("qwen2")
    fuse(model)
    before = addresses(model)
    decoder = fuse(model)
    assert addresses(model) == before
    assert decoder.layers[0].qkv.data_ptr() == model.model.layers[0].self_attn.q_proj.weight.data_ptr()


def test_fused_models_train_save_and_load_as_before(tmp_path):
    plain, fused = wide("qwen2", tie_word_embeddings=True), wide("qwen2", tie_word_embeddings=True)
    fuse(fused)
    ids = torch.tensor([prompt(12)])
    for model in (plain, fused):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    fused.save_pretrained(tmp_path)
    again = type(fused).from_pretrained(tmp_path)
    for (name, weight), other, loaded in zip(plain.named_parameters(), fused.parameters(), again.parameters()):
        assert torch.equal(weight, other), name
        assert torch.equal(weight, loaded), name


def test_a_copy_of_a_fused_model_stands_on_its_own():
    model = wide("llama")
    fuse(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.zero_()
    assert copied.model.layers[0].self_attn.q_proj.weight.abs().sum() > 0
    assert why_not(copied) == ""
    assert fuse(copied).layers[0].qkv.abs().sum() > 0


def test_the_rotary_tables_are_those_of_the_model():
    decoder = fuse(wide("llama"))
    cos, sin = decoder.rotary_tables(5)
    expected_cos, expected_sin = decoder.rotary(decoder.embedding[:1], torch.arange(5)[None])
    assert torch.equal(torch.cat([cos, cos], 1), expected_cos[0])
    assert torch.equal(torch.cat([sin, sin], 1), expected_sin[0])


def test_what_the_kernels_do_not_know_is_said():
    assert why_not(wide("qwen2")) == ""
    assert "head size 8" in why_not(random_model("qwen2"))
    assert "gemma2" in why_not(random_model("gemma2_soft_cap"))
    windows = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}
    assert "sliding window" in why_not(wide("qwen2", **windows))
    assert "biases" in why_not(wide("llama", attention_bias=True))
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert "dynamic" in why_not(wide("llama", rope_parameters=dynamic))


def test_a_model_with_an_adapter_takes_the_plain_engine():
    peft = pytest.importorskip("peft")
    model = wide("qwen2")
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["q_proj"]), model)
    assert has_adapter(model)
    assert "adapter" in why_not(model)


def test_on_a_cpu_the_plain_engine_runs():
    model = wide("qwen2")
    assert isinstance(native_engine(model, max_num_seqs=4), NativeEngine)
    assert addresses(model) == addresses(copy.copy(model))


# Kernels' sizes: importing them needs Triton


def test_the_ladder_of_batch_sizes_pads_by_at_most_half():
    pytest.importorskip("triton")
    from ragen.engine.graph.decode import batch_ladder, rung

    assert batch_ladder(200) == [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 200]
    assert batch_ladder(3) == [1, 2, 3]
    assert batch_ladder(1) == [1]
    ladder = batch_ladder(512)
    assert all((rung(ladder, size) or 0) <= 2 * size for size in range(1, 513))
    assert rung(ladder, 513) is None
