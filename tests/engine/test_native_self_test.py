"""Models that the native engine would play wrongly are refused before the first reply; all others pass."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, HrmTextConfig, MambaConfig, Qwen3MoeConfig, RecurrentGemmaConfig

from ragen.engine.native.engine import NativeEngine
from ragen.engine.native.self_test import check_decoding
from ragen.errors import ModelUnavailable
from tests.engine.families import FAMILIES, SHAPE, VOCAB, random_model

SMALL: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


def made(config, dtype=torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_are_played_pass(family, dtype):
    check_decoding(random_model(family, dtype), is_trained=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_pass(dtype):
    config = Qwen3MoeConfig(**SHAPE, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16)
    check_decoding(made(config, dtype), is_trained=False)


def test_layers_that_keep_a_state_of_their_own_are_refused():
    """It remembers the tokens of the last pass, whoever's they were."""
    model = made(RecurrentGemmaConfig(**SMALL, intermediate_size=48, lru_width=32))
    with pytest.raises(ModelUnavailable, match="tokens meet outside"):
        check_decoding(model, is_trained=False)


def test_an_earlier_turn_that_is_forgotten_is_noticed():
    model = made(MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8))
    with pytest.raises(ModelUnavailable, match=r"the native engine's cache .* results are off by"):
        check_decoding(model, is_trained=True)


def test_a_cache_that_lacks_what_a_family_asks_of_it_is_a_sentence():
    shape: dict[str, Any] = SHAPE | {"num_key_value_heads": 4}
    config = HrmTextConfig(**shape, head_dim=16)
    with pytest.raises(ModelUnavailable, match="that ends with AttributeError: 'RowCache'"):
        check_decoding(made(config), is_trained=True)


def test_rows_that_are_taken_for_one_another_are_noticed(monkeypatch):
    forward = NativeEngine.forward

    def swapped(self, ids, step):
        step.rows = torch.tensor([1, 0]) if ids.shape[1] == 1 else None
        return forward(self, ids, step)

    monkeypatch.setattr(NativeEngine, "forward", swapped)
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(ModelUnavailable, match="results are off by"):
            check_decoding(random_model("llama", dtype), is_trained=True)
