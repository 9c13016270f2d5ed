"""Which engine of this process a model gets."""

import copy
import importlib.util
import sys
from types import SimpleNamespace

import pytest
import torch

from ragen.config import load_config
from ragen.engine.graph.fused import weight_addresses
from ragen.engine.native import build
from ragen.engine.native.build import native_engine, plain_reason
from ragen.engine.native.engine import NativeEngine
from tests.engine.families import random_model, wide


def test_on_a_cpu_the_plain_engine_runs():
    model = wide("qwen2")
    assert isinstance(native_engine(model, max_num_seqs=4), NativeEngine)
    assert weight_addresses(model) == weight_addresses(copy.copy(model))


def test_who_asks_for_nothing_gets_the_engine_of_the_base_configuration(monkeypatch):
    """Benchmarks and tests build it without a configuration."""
    built = {}
    module = SimpleNamespace(GraphEngine=lambda model, tokenizer, **options: built.update(options))
    monkeypatch.setitem(sys.modules, "ragen.engine.graph.engine", module)
    monkeypatch.setattr(build, "plain_reason", lambda model: "")
    weight = SimpleNamespace(is_cuda=True, dtype=torch.bfloat16)
    native_engine(SimpleNamespace(parameters=lambda: iter([weight])))
    rollout = load_config("base").actor_rollout_ref.rollout
    assert built == {"free_cache": rollout.free_cache_engine, "drafts": rollout.drafts}


@pytest.mark.parametrize("has_triton", [True, False])
def test_the_reason_for_the_plain_engine_is_given(monkeypatch, has_triton):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if has_triton else None)
    reasons = {family: plain_reason(random_model(family)) for family in ("gemma2_soft_cap", "llama")}
    expected = {"gemma2_soft_cap": "the family gemma2 is not described", "llama": "its head size 8 is not a power of"}
    for family, reason in reasons.items():
        assert reason.startswith(expected[family] if has_triton else "triton is not installed")
    assert plain_reason(wide("qwen2")) == ("" if has_triton else "triton is not installed")
