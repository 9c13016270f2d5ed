"""GGUF files of tiny random models, written by the format's description and by what llama.cpp does to each family."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from tests.llm_agent.templates import FAMILIES, make_tokenizer

F32, F16, BF16 = 0, 1, 30
ALIGNMENT = 32
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-6,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.5, 2.0, 4.0],
    "long_factor": [1.0, 3.0, 5.0, 9.0],
    "original_max_position_embeddings": 1024,
}
CONFIGS: dict[str, Any] = {
    "qwen2": lambda **more: Qwen2Config(**SHAPE, tie_word_embeddings=True, **more),
    "qwen3": lambda **more: Qwen3Config(**SHAPE, head_dim=16, **more),
    "llama": lambda **more: LlamaConfig(**SHAPE, **more),
    "llama3": lambda **more: LlamaConfig(**SHAPE | {"head_dim": 32}, rope_parameters=dict(LLAMA3_ROPE), **more),
    "gemma2": lambda **more: Gemma2Config(
        **SHAPE, head_dim=16, query_pre_attn_scalar=16, sliding_window=7, final_logit_softcapping=5.0, **more
    ),
    "gemma3": lambda **more: Gemma3TextConfig(
        **SHAPE | {"num_hidden_layers": 6}, head_dim=16, query_pre_attn_scalar=16, sliding_window=7, **more
    ),
    "phi3": lambda **more: Phi3Config(**SHAPE, sliding_window=7, **more),
    "phi3_long": lambda **more: Phi3Config(
        **SHAPE, rope_parameters=dict(LONG_ROPE), original_max_position_embeddings=1024, **more
    ),
}
ARCHITECTURES = {"llama3": "llama", "phi3_long": "phi3"}
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_PARTS = PARTS | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


# --- the format


def gguf_bytes(facts: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """A file of facts and tensors: (kind, shape, bytes)."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    header += b"".join(string(name) + value_bytes(value) for name, value in facts.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        header += string(name) + dims + struct.pack("<IQ", kind, len(data))
        data += padded(content)
    return padded(header) + data


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value_bytes(value: Any) -> bytes:
    kinds = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
    if isinstance(value, str):
        return struct.pack("<I", 8) + string(value)
    if isinstance(value, list):
        if isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
        kind, letter = kinds[type(value[0])]
        return struct.pack(f"<IIQ{len(value)}{letter}", 9, kind, len(value), *value)
    kind, letter = kinds[type(value)]
    return struct.pack(f"<I{letter}", kind, value)


def padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % ALIGNMENT)


def plain(array: np.ndarray, kind: int) -> tuple[int, tuple[int, ...], bytes]:
    """A tensor in an unquantized format; vectors are always float32, as llama.cpp writes them."""
    kind = kind if array.ndim > 1 else F32
    array = array.astype("<f4")
    contents = {F32: array, F16: array.astype("<f2"), BF16: (array.view("<u4") >> 16).astype("<u2")}
    return kind, array.shape, contents[kind].tobytes()


# --- models


def toy_tokenizer(style: str = "qwen2.5") -> PreTrainedTokenizerFast:
    return make_tokenizer(FAMILIES[style])


def random_model(family: str, *, vocab_size: int, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    config = CONFIGS[family](vocab_size=vocab_size, pad_token_id=0, bos_token_id=1, eos_token_id=2, **changes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for name, weight in model.named_parameters():  # norms start all alike
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=0.2, std=0.3)
    return model


def model_tensors(model: Any, family: str, kind: int = F32) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """The weights as llama.cpp's converter writes them."""
    parts = GEMMA_PARTS if family.startswith("gemma") else PARTS
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    tensors = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        module, _, ending = name.rpartition(".")
        if module in top:
            new = f"{top[module]}.{ending}"
        else:
            _, _, layer, inner = module.split(".", 3)
            new = f"blk.{layer}.{parts[inner]}.{ending}"
        tensors[new] = plain(as_llama_cpp(name, weight, model.config, family).numpy(), kind)
    if family == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model.config, "cpu")
        width = model.config.head_dim
        usual = LLAMA3_ROPE["rope_theta"] ** -(torch.arange(0, width, 2) / width)
        tensors["rope_freqs.weight"] = plain((usual / scaled).numpy(), F32)
    if family == "phi3_long":
        for name in ("long", "short"):
            tensors[f"rope_factors_{name}.weight"] = plain(np.array(LONG_ROPE[f"{name}_factor"]), F32)
    return tensors


def as_llama_cpp(name: str, weight: torch.Tensor, config: Any, family: str) -> torch.Tensor:
    if family.startswith("gemma") and name.endswith("norm.weight"):
        return weight + 1
    if family.startswith("llama") and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return halves.swapaxes(1, 2).reshape(weight.shape)
    return weight


def model_facts(model: Any, family: str) -> dict[str, Any]:
    config, name = model.config, ARCHITECTURES.get(family, family)
    rope = config.rope_parameters
    facts = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope.get("rope_theta", rope.get("full_attention", {}).get("rope_theta"))),
    }
    if hasattr(config, "head_dim"):
        facts |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if family == "phi3_long":
        facts["rope.scaling.original_context_length"] = config.original_max_position_embeddings
    if family.startswith("gemma") or family == "phi3":
        facts["attention.sliding_window"] = config.sliding_window
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None):
            facts[key] = getattr(config, key)
    return {"general.architecture": name} | {f"{name}.{key}": value for key, value in facts.items()}


def tokenizer_facts(tokenizer: Any, num_rows: int, *, cut: str = "gpt-2") -> dict[str, Any]:
    """Vocabulary, merges and template as a GGUF file holds them; rows without a token are named and marked unused."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = {entry["id"]: 3 if entry["special"] else 4 for entry in content["added_tokens"]}
    kinds = [special.get(index, 1) for index in range(len(tokens))] + [5] * (num_rows - len(tokens))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": tokens + [f"[PAD{index}]" for index in range(len(tokens), num_rows)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.padding_token_id": tokenizer.eos_token_id,  # the trap
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def write_gguf(path: Path, family: str = "qwen2", *, kind: int = F32, style: str = "qwen2.5", **changes: Any) -> Any:
    """A file with a random model and a tokenizer; the model."""
    tokenizer = toy_tokenizer(style)
    num_rows = len(tokenizer) + 8
    model = random_model(family, vocab_size=num_rows, **changes)
    facts = model_facts(model, family) | tokenizer_facts(tokenizer, num_rows)
    path.write_bytes(gguf_bytes(facts, model_tensors(model, family, kind)))
    return model


def write_split(path: Path, count: int) -> list[Path]:
    """The model of a file in files of its own, as llama.cpp's gguf-split writes them."""
    from ragen.models.gguf_file import open_gguf

    gguf = open_gguf([path])
    content, names = path.read_bytes(), list(gguf.tensors)
    paths = []
    for number in range(count):
        chosen = {name: gguf.tensors[name] for name in names[number::count]}
        tensors = {
            name: (tensor.kind, tensor.shape, content[tensor.start : tensor.start + tensor.num_bytes])
            for name, tensor in chosen.items()
        }
        split = {"split.no": number, "split.count": count, "split.tensors.count": len(names)}
        paths.append(path.with_name(f"{path.stem}-{number + 1:05d}-of-{count:05d}.gguf"))
        paths[-1].write_bytes(gguf_bytes((gguf.facts if number == 0 else {}) | split, tensors))
    return paths
