"""Models that our packed passes would compute wrongly are refused before they are used; all others pass."""

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    FalconConfig,
    GPTJConfig,
    Lfm2Config,
    LlamaConfig,
    Mamba2Config,
    OpenAIGPTConfig,
    OPTConfig,
    PhimoeConfig,
    Qwen3MoeConfig,
)

from ragen.engine.native.self_test import check_decoding
from ragen.errors import ModelUnavailable
from ragen.modeling import self_test
from ragen.modeling.model import logits_of
from ragen.modeling.packing import MIN_SHARED
from ragen.modeling.self_test import check_mixing, check_trainable, made_up, packed, window_of
from tests.engine.families import FAMILIES, SHAPE, VOCAB, random_model
from tests.learners.batches import value_model

SMALL: dict[str, Any] = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
EXPERTS: dict[str, Any] = SHAPE | {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "head_dim": 16,
}
REFUSED = {
    "short convolutions": (
        lambda: Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"]),
        "tokens meet outside",
    ),
    "a recurrence that soon forgets": (
        lambda: Mamba2Config(
            vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, n_groups=1, state_size=8
        ),
        "tokens meet outside",
    ),
    "attention of its own": (lambda: GPTJConfig(**SMALL, rotary_dim=4), "tokens meet outside"),
    "attention of its own, to little effect": (lambda: OpenAIGPTConfig(**SMALL), "tokens meet outside"),
    "attention that needs its mask": (
        lambda: FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True),
        "that ends with TypeError",
    ),
    "a layer before the logits": (
        lambda: BertConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            is_decoder=True,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        "results are off by",
    ),
    "a window in the mask alone": (
        lambda: PhimoeConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=100),
        "sliding window of 100 tokens does not reach",
    ),
}


def made(config, dtype=torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@pytest.mark.parametrize("what", REFUSED)
def test_what_packing_would_compute_wrongly_is_refused(what):
    config, reason = REFUSED[what]
    model = made(config())
    with pytest.raises(ModelUnavailable, match=reason) as error:
        check_trainable(model)
    assert str(error.value).startswith(f"{type(model).__name__} ({model.config.model_type}) cannot be run here")
    assert "rollout.name=vllm" in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_families_that_are_trained_pass(family, dtype):
    check_trainable(random_model(family, dtype))
    check_trainable(made(FAMILIES[family](), dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_pass(dtype):
    check_trainable(made(Qwen3MoeConfig(**EXPERTS), dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_that_are_drawn_in_training_are_refused(dtype):
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    model = made(PhimoeConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2), dtype)
    torch.random.set_rng_state(state)
    with pytest.raises(ModelUnavailable, match="draws random numbers while it is trained"):
        check_trainable(model)
    assert torch.equal(torch.random.get_rng_state(), state) and not model.training
    check_decoding(model, is_trained=False)


def test_layers_that_might_be_dropped_and_never_are_pass():
    config = OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        word_embed_proj_dim=32,
        dropout=0.0,  # as load_model makes it
    )
    check_trainable(made(config))


def test_value_models_pass():
    check_trainable(value_model())


def test_what_goes_missing_is_noticed_in_bfloat16_too(monkeypatch):
    model = random_model("llama", torch.bfloat16)
    monkeypatch.setattr(self_test, "logits_of", lambda model, hidden: logits_of(model, hidden.roll(1, 0)))
    check_mixing(model)
    with pytest.raises(ModelUnavailable, match="results are off by"):
        check_trainable(model)


@pytest.mark.parametrize("num_layers", [2, 12])
def test_rounding_is_no_error_where_another_context_changes_next_to_nothing(num_layers):
    """One channel outweighs all others behind every norm, as in some trained models."""
    config = OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        word_embed_proj_dim=16,
        do_layer_norm_before=False,
        dropout=0.0,
    )
    model = made(config)
    for layer in model.model.decoder.layers:
        for norm in (layer.self_attn_layer_norm, layer.final_layer_norm):
            norm.weight.data[3] += 30
    check_trainable(model)
    check_decoding(model, is_trained=True)


def test_models_that_compute_nan_are_left_to_those_who_say_so():
    model = random_model("llama")
    model.model.norm.weight.data.fill_(float("nan"))
    check_trainable(model)


def test_nothing_is_left_behind():
    model = random_model("qwen2")
    for weight in model.parameters():
        weight.requires_grad_(True)
    before, attention = torch.random.get_rng_state(), model.config._attn_implementation
    check_trainable(model)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(weight.grad is None for weight in model.parameters())
    assert not model.get_input_embeddings()._forward_hooks and not model.training
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("vocab", [8, VOCAB, 150_000])
def test_one_beginning_is_shared_and_something_stands_between(vocab):
    config = random_model("llama").config
    config.vocab_size = vocab
    stranger, first, second = made_up(config)
    assert stranger[:MIN_SHARED] == first[:MIN_SHARED] and first[-5:] == second[-5:]
    assert {config.pad_token_id, config.bos_token_id}.isdisjoint(stranger + first + second)
    model = random_model("llama")
    assert sum(packed(model).shared) >= MIN_SHARED


def test_small_vocabularies_pass():
    for vocab in range(6, 40):
        shape: dict[str, Any] = SHAPE | {"vocab_size": vocab}
        check_mixing(made(LlamaConfig(**shape)))


def test_a_window_counts_where_a_layer_must_have_it():
    assert window_of(FAMILIES["mistral_sliding_window"]()) == 7
    assert window_of(FAMILIES["gemma2_soft_cap"]()) == 7
    assert window_of(FAMILIES["qwen2"]()) is None
    left_over = FAMILIES["llama"]()
    left_over.sliding_window = 7  # of the configuration that it was converted from
    assert window_of(left_over) is None
    longer = PhimoeConfig(**SHAPE, sliding_window=512)
    assert window_of(longer) is None
