"""Fused weights are the model's own; models the kernels do not know are told apart."""

import copy

import pytest
import torch

from ragen.engine.graph.fused import fuse, unsupported_reason, weight_addresses
from ragen.modeling.lora import has_adapter
from tests.engine.families import random_model, wide
from tests.engine.requests import prompt


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama", "mistral"])
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
    before = weight_addresses(model)
    decoder = fuse(model)
    assert weight_addresses(model) == before
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
    assert unsupported_reason(copied) == ""
    assert fuse(copied).layers[0].qkv.abs().sum() > 0


def test_the_rotary_tables_are_those_of_the_model():
    decoder = fuse(wide("llama"))
    cos, sin = decoder.rotary_tables(5)
    expected_cos, expected_sin = decoder.rotary(decoder.embedding[:1], torch.arange(5)[None])
    assert torch.equal(torch.cat([cos, cos], 1), expected_cos[0])
    assert torch.equal(torch.cat([sin, sin], 1), expected_sin[0])


def test_what_the_kernels_do_not_know_is_said():
    assert unsupported_reason(wide("qwen2")) == ""
    assert "head size 8" in unsupported_reason(random_model("qwen2"))
    assert "gemma2" in unsupported_reason(random_model("gemma2_soft_cap"))
    windows = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0}
    assert "sliding window" in unsupported_reason(wide("qwen2", **windows))
    assert "sliding window" in unsupported_reason(wide("mistral", sliding_window=7))
    assert "biases" in unsupported_reason(wide("llama", attention_bias=True))
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert "dynamic" in unsupported_reason(wide("llama", rope_parameters=dynamic))


def test_a_model_with_an_adapter_takes_the_plain_engine():
    peft = pytest.importorskip("peft")
    model = wide("qwen2")
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["q_proj"]), model)
    assert has_adapter(model)
    assert "adapter" in unsupported_reason(model)
