"""How models are switched to an attention function, and what it is called with."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AttentionInterface

from ragen.errors import EngineError
from ragen.modeling.attention.switch import Attention, Heads, plain_attention

SEEN: list[tuple[Heads, str]] = []


def attend(heads: Heads, state: str) -> torch.Tensor:
    SEEN.append((heads, state))
    return heads.query.transpose(1, 2)


NOTED = Attention("ragen_test_noted", attend)
HEADS = [torch.zeros(1, count, 3, 4) for count in (2, 1, 1)]


def module(layer: int) -> SimpleNamespace:
    return SimpleNamespace(layer_idx=layer, config=SimpleNamespace(num_hidden_layers=2))


def test_a_model_calls_the_function_within_and_its_own_after():
    config = SimpleNamespace(_attn_implementation_internal="sdpa")
    with NOTED.serving(config, "outer") as before:
        assert (before, config._attn_implementation_internal, NOTED.state) == ("sdpa", NOTED.name, "outer")
        with NOTED.serving(config, "inner") as inner_before:
            assert (inner_before, NOTED.state) == (NOTED.name, "inner")
        assert NOTED.state == "outer"
    assert config._attn_implementation_internal == "sdpa"
    with pytest.raises(AssertionError, match="outside of its pass"):
        _ = NOTED.state


def test_the_function_gets_what_the_layer_hands_over():
    call = AttentionInterface()[NOTED.name]
    with NOTED.serving(SimpleNamespace(_attn_implementation_internal="sdpa"), "a pass"):
        out, weights = call(module(1), *HEADS, None, sliding_window=7, is_causal=True)
    heads, state = SEEN[-1]
    assert (out.shape, weights, state) == ((1, 3, 2, 4), None, "a pass")
    assert (heads.scaling, heads.window, heads.softcap) == (0.5, 7, None)
    assert heads.is_grouped and heads.is_last


def test_attention_sinks_are_refused():
    call = AttentionInterface()[NOTED.name]
    with (
        pytest.raises(EngineError, match="sinks"),
        NOTED.serving(SimpleNamespace(_attn_implementation_internal="sdpa"), "a pass"),
    ):
        call(module(0), *HEADS, None, s_aux=torch.zeros(2))


@pytest.mark.parametrize("name", ["attention_mask", "position_bias", "block_indices"])
def test_what_a_family_says_beside_windows_is_refused(name):
    call, given = AttentionInterface()[NOTED.name], {"attention_mask": None} | {name: torch.zeros(2)}
    with (
        pytest.raises(EngineError, match=f"SimpleNamespace takes {name} of its own"),
        NOTED.serving(SimpleNamespace(_attn_implementation_internal="sdpa"), "a pass"),
    ):
        call(module(0), *HEADS, **given)


def test_plain_attention_is_that_of_the_family():
    config = SimpleNamespace(_attn_implementation_internal="sdpa")
    with plain_attention(config):
        assert config._attn_implementation_internal == "eager"
    assert config._attn_implementation_internal == "sdpa"
