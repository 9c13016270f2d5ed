"""Each architecture has two answers: may the graph engine run it, may updates fuse its layers."""

import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig

from ragen.engine.graph.fused import unsupported_reason
from ragen.modeling import families
from ragen.modeling.families import FAMILIES, Family, family_of
from ragen.modeling.fused_layers import fused_layers, unfused_reason
from tests.engine.families import SHAPE, random_model, wide

GPU = torch.device("cuda")  # of which nothing is asked


def mistral():
    config = MistralConfig(**SHAPE | {"head_dim": 32, "sliding_window": None})
    return AutoModelForCausalLM.from_config(config)


def num_replaced(model) -> int:
    with fused_layers(model, GPU):
        return sum("forward" in vars(module) for module in model.modules())


@pytest.fixture
def with_triton(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: name == "triton" or find(name, *rest))


def test_an_unknown_family_runs_as_it_comes(with_triton, monkeypatch):
    monkeypatch.delitem(families.FAMILIES, "mistral")
    model = mistral()
    assert family_of(model.config) == Family()
    assert unsupported_reason(model) == unfused_reason(model) == "the family mistral is not described"
    assert num_replaced(model) == 0


def test_a_family_for_decoding_keeps_its_own_layers_in_training(with_triton, monkeypatch):
    monkeypatch.setitem(families.FAMILIES, "mistral", Family(has_graph_decoder=True))
    model = mistral()
    assert unsupported_reason(model) == ""
    assert num_replaced(model) == 0


def test_a_family_for_training_is_not_decoded(with_triton, monkeypatch):
    monkeypatch.setitem(families.FAMILIES, "mistral", Family(has_fused_training=True))
    model = mistral()
    assert unsupported_reason(model) != ""
    # In each of two layers: attention, MLP and two norms; and the last norm.
    assert num_replaced(model) == 2 * 4 + 1


def test_four_families_have_both():
    assert {name for name, family in FAMILIES.items() if family.has_graph_decoder and family.has_fused_training} == {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
    }


def test_why_layers_are_not_fused(with_triton, monkeypatch):
    assert unfused_reason(wide("qwen2")) == ""
    assert unfused_reason(wide("qwen2", hidden_act="gelu")) == "its activation is gelu, not silu"
    assert unfused_reason(wide("llama", head_dim=24)) == "its head size 24 is not a power of two"
    assert unfused_reason(random_model("gemma3_two_ropes")) == "the family gemma3_text is not described"
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    assert unfused_reason(wide("qwen2")) == "triton is not installed"
