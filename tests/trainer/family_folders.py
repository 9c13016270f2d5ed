"""Model folders of the families people train: tiny random weights, the family's chat template and special tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPTJConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from tests.llm_agent.templates import family_tokenizer

WINDOW = 64
"""Of sliding attention: shorter than any prompt."""
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
GEMMA: dict[str, Any] = {
    **SHAPE,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}


@dataclass(frozen=True, kw_only=True)
class FolderFamily:
    """A chat template of tests/llm_agent/templates.py and the configuration of a model."""

    template: str
    config: Callable[..., Any]
    is_tied: bool = False
    pad: str | None = None
    """The token that pads; None leaves it to the tokenizer."""


FOLDERS = {
    "qwen2": FolderFamily(
        template="qwen2.5", config=lambda **ids: Qwen2Config(**SHAPE, tie_word_embeddings=True, **ids), is_tied=True
    ),
    "qwen3": FolderFamily(template="qwen3", config=lambda **ids: Qwen3Config(**SHAPE, head_dim=16, **ids)),
    "llama3": FolderFamily(
        template="llama3", config=lambda **ids: LlamaConfig(**SHAPE, rope_parameters=dict(LLAMA3_ROPE), **ids)
    ),
    # As it is published: the end of a reply pads, too.
    "smollm2": FolderFamily(
        template="smollm2",
        config=lambda **ids: LlamaConfig(**SHAPE, tie_word_embeddings=True, **ids),
        is_tied=True,
        pad="<|im_end|>",
    ),
    "gemma2": FolderFamily(template="gemma", config=lambda **ids: Gemma2Config(**GEMMA, **ids), is_tied=True),
    "gemma3": FolderFamily(template="gemma3", config=lambda **ids: Gemma3TextConfig(**GEMMA, **ids), is_tied=True),
    "phi3": FolderFamily(template="phi3", config=lambda **ids: Phi3Config(**SHAPE, sliding_window=WINDOW, **ids)),
    "mistral": FolderFamily(
        template="mistral", config=lambda **ids: MistralConfig(**SHAPE, sliding_window=WINDOW, **ids)
    ),
}

REFUSED = {
    "lfm2": FolderFamily(
        template="qwen2.5", config=lambda **ids: Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"], **ids)
    ),
    "gptj": FolderFamily(
        template="qwen2.5",
        config=lambda **ids: GPTJConfig(n_embd=32, n_layer=2, n_head=4, n_positions=2048, rotary_dim=4, **ids),
    ),
}
"""Families whose tokens meet elsewhere than in our attention."""


def write_folder(name: str, folder: Path) -> Path:
    """A Hugging Face directory of a family, as `save_pretrained` writes it."""
    family = (FOLDERS | REFUSED)[name]
    tokenizer = family_tokenizer(family.template)
    pad = tokenizer.convert_tokens_to_ids(family.pad) if family.pad else 0
    torch.manual_seed(0)
    config = family.config(
        vocab_size=len(tokenizer) + 5,
        pad_token_id=pad,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
