"""Tiny random models of the decoder families the engine is tested with."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

VOCAB = 97
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FAMILIES = {
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=16),
    "llama": lambda: LlamaConfig(**SHAPE),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=512,
        initializer_range=0.4,
        eos_token_id=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ),
    "mistral_sliding_window": lambda: MistralConfig(**SHAPE, sliding_window=7),
    "gemma2_soft_cap": lambda: Gemma2Config(**SHAPE, head_dim=16, sliding_window=7, query_pre_attn_scalar=16),
    # Two kinds of layers with rotary embeddings of their own.
    "gemma3_two_ropes": lambda: Gemma3TextConfig(
        **SHAPE,
        head_dim=16,
        sliding_window=7,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "phi3_fused_projections": lambda: Phi3Config(**SHAPE, sliding_window=7),
}


def random_model(family: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    # Eager attention is the reference: sdpa ignores the soft cap.
    return AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=dtype, attn_implementation="eager").eval()


def wide(family: str, **changes: Any) -> Any:
    """A random model whose heads are as wide as the kernels need them."""
    classes: dict[str, Any] = {
        "qwen2": Qwen2Config,
        "qwen3": Qwen3Config,
        "llama": LlamaConfig,
        "mistral": partial(MistralConfig, sliding_window=None),
    }
    torch.manual_seed(0)
    config = classes[family](**SHAPE | {"head_dim": 32} | changes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
