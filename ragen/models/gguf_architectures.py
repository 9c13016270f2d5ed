"""The architectures of GGUF files: their config.json, the names of their tensors, and what was done to the numbers.

One more is an entry of ARCHITECTURES; a conversion is held against the model transformers builds from the
configuration, name by name and shape by shape, before anything is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from ragen.errors import FileError
from ragen.models.gguf_file import Gguf

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Factors of rotary embeddings; they belong into config.json."""
TIED_BELOW = 0.5
"""Relative distance of two copies of one matrix in different formats; that of two matrices is above one."""
COMPARED_ROWS = 256
LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# llama.cpp's names on the left, Hugging Face's on the right; `blk.3.attn_q` becomes `model.layers.3.self_attn.q_proj`.
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
PHI_NAMES = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}


class Facts:
    """The facts of an architecture, without its prefix: `facts("block_count")` of llama is `llama.block_count`."""

    def __init__(self, gguf: Gguf) -> None:
        self.gguf, self.prefix = gguf, gguf.facts["general.architecture"]

    def __call__(self, name: str, default: Any = None) -> Any:
        return self.gguf.facts.get(f"{self.prefix}.{name}", default)

    def needed(self, name: str) -> Any:
        """A fact that must be there, as one number for all layers."""
        value = self(name)
        if not isinstance(value, int | float):
            state = "differs between layers" if isinstance(value, list) else "is missing"
            raise FileError(f"{self.gguf.name}: {self.prefix}.{name} {state}, so this file cannot be converted.")
        return value


def undo_interleaving(part: str, weight: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Llama's queries and keys were reordered for llama.cpp's way of rotating them."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    return rotary_halves(weight, num_heads=config[heads[part]]) if part in heads else weight


def rotary_halves(weight: Tensor, *, num_heads: int) -> Tensor:
    """Rows of one head from interleaved pairs (llama.cpp rotates rows 2i, 2i+1) to halves (HF rotates i, i + d/2).

    one head, rows [a0, b0, a1, b1] -> [a0, a1, b0, b1]
    """
    pairs = weight.view(num_heads, weight.shape[0] // num_heads // 2, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def undo_unit_offset(part: str, weight: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Gemma's norms multiply by 1 + weight; llama.cpp stores the sum."""
    return weight - 1 if part.endswith("norm") else weight


def llama_extras(facts: Facts) -> dict[str, Any]:
    return {"hidden_act": "silu", "attention_bias": "blk.0.attn_q.bias" in facts.gguf.tensors}


def qwen_extras(facts: Facts) -> dict[str, Any]:
    return {"hidden_act": "silu", "use_sliding_window": False}


def gemma2_extras(facts: Facts) -> dict[str, Any]:
    return gemma_extras(facts, large=46) | {
        "attn_logit_softcapping": facts("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": facts("final_logit_softcapping", 30.0),
        "layer_types": layer_types(facts, every=2),
    }


def gemma3_extras(facts: Facts) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": facts("rope.freq_base_swa", 10_000.0)}
    return gemma_extras(facts, large=62) | {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": facts("final_logit_softcapping"),
        "layer_types": layer_types(facts, every=6),
        "rope_parameters": {"sliding_attention": rope, "full_attention": rope_parameters(facts, default=1e6)},
    }


def gemma_extras(facts: Facts, *, large: int) -> dict[str, Any]:
    """What both Gemmas share. The largest, known by its layers, scales its queries by the width, not by the heads'."""
    width, num_heads = facts.needed("embedding_length"), facts.needed("attention.head_count")
    is_large = facts.needed("block_count") == large
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": width // num_heads if is_large else head_dim(facts),
        "sliding_window": facts.needed("attention.sliding_window"),
    }


def layer_types(facts: Facts, *, every: int) -> list[str]:
    """Each so many-th layer sees everything, the others a window."""
    numbers = range(1, facts.needed("block_count") + 1)
    return ["full_attention" if number % every == 0 else "sliding_attention" for number in numbers]


def phi3_extras(facts: Facts) -> dict[str, Any]:
    rope = rope_parameters(facts)
    rope["partial_rotary_factor"] = facts("rope.dimension_count", head_dim(facts)) / head_dim(facts)
    extras: dict[str, Any] = {"hidden_act": "silu", "sliding_window": facts("attention.sliding_window") or None}
    if "rope_factors_long.weight" in facts.gguf.tensors:
        original = facts.needed("rope.scaling.original_context_length")
        factors = {key: facts.gguf.read(f"rope_factors_{key}.weight").tolist() for key in ("long", "short")}
        rope |= {"rope_type": "longrope", "original_max_position_embeddings": original}
        rope |= {"long_factor": factors["long"], "short_factor": factors["short"]}
        extras["original_max_position_embeddings"] = original
    return extras | {"rope_parameters": rope}


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a GGUF architecture becomes one of Hugging Face."""

    model_type: str
    class_name: str
    _: KW_ONLY
    names: Mapping[str, str]
    """Parts of tensor names, llama.cpp's to Hugging Face's."""
    extras: Callable[[Facts], dict[str, Any]]
    """Keys of config.json beside those that all share."""
    undo: Callable[[str, Tensor, Mapping[str, Any]], Tensor] = lambda part, weight, config: weight
    """What llama.cpp did to the numbers, undone: (part of the name, weight, config)."""


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", names=NAMES, extras=llama_extras, undo=undo_interleaving),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", names=NAMES, extras=qwen_extras),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", names=NAMES | QK_NORMS, extras=qwen_extras),
    "gemma2": Architecture(
        "gemma2", "Gemma2ForCausalLM", names=NAMES | GEMMA_NORMS, extras=gemma2_extras, undo=undo_unit_offset
    ),
    "gemma3": Architecture(
        "gemma3_text",
        "Gemma3ForCausalLM",
        names=NAMES | QK_NORMS | GEMMA_NORMS,
        extras=gemma3_extras,
        undo=undo_unit_offset,
    ),
    "phi3": Architecture("phi3", "Phi3ForCausalLM", names=NAMES | PHI_NAMES, extras=phi3_extras),
}
"""By `general.architecture`. SmolLM2 and Mistral are llamas there."""


def architecture_of(gguf: Gguf) -> Architecture:
    name = gguf.facts.get("general.architecture")
    if name not in ARCHITECTURES:
        raise FileError(
            f"{gguf.name} holds the architecture {str(name)[:60]!r}. Supported: {', '.join(ARCHITECTURES)} "
            "(SmolLM2 and Mistral are llama). Convert it with another program, and give the folder as model_path."
        )
    if EMBEDDING not in gguf.tensors:
        raise FileError(f"{gguf.name} holds no {EMBEDDING}: it is not a whole language model.")
    return ARCHITECTURES[name]


def model_config(gguf: Gguf, architecture: Architecture, *, is_tied: bool, dtype: str) -> dict[str, Any]:
    """The config.json of a file; the special ids are added with the tokenizer."""
    facts = Facts(gguf)
    rope = rope_parameters(facts)
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": gguf.tensors[EMBEDDING].shape[0],
        "hidden_size": facts.needed("embedding_length"),
        "intermediate_size": facts.needed("feed_forward_length"),
        "num_hidden_layers": facts.needed("block_count"),
        "num_attention_heads": facts.needed("attention.head_count"),
        "num_key_value_heads": facts("attention.head_count_kv", facts.needed("attention.head_count")),
        "head_dim": head_dim(facts),
        "max_position_embeddings": facts.needed("context_length"),
        "rms_norm_eps": float(f"{facts.needed('attention.layer_norm_rms_epsilon'):.6g}"),  # it was a float32
        "rope_parameters": rope,
        "rope_theta": rope["rope_theta"],  # the same for transformers 4 and the servers that read its format
        "tie_word_embeddings": is_tied,
        "dtype": dtype,
        **architecture.extras(facts),
    }


def head_dim(facts: Facts) -> int:
    return facts("attention.key_length") or facts.needed("embedding_length") // facts.needed("attention.head_count")


def rope_parameters(facts: Facts, default: float = 10_000.0) -> dict[str, Any]:
    """The rotary embedding: plain, scaled by llama.cpp's keys, or by Llama 3's factors."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": facts("rope.freq_base", default)}
    kind = facts("rope.scaling.type", "none")
    if "rope_freqs.weight" in facts.gguf.tensors:
        return rope | llama3_rope(facts, rope["rope_theta"])
    if kind in ("none", "longrope"):  # the second is known by its factors
        return rope
    if kind not in ("linear", "yarn"):
        raise FileError(f"{facts.gguf.name}: the rotary embedding is scaled by {kind!r}. Supported: linear, yarn.")
    rope |= {"rope_type": kind, "factor": facts.needed("rope.scaling.factor")}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = facts.needed("rope.scaling.original_context_length")
    return rope


def llama3_rope(facts: Facts, theta: float) -> dict[str, Any]:
    """Llama 3.1's scaling, which the file holds as one factor per frequency; they are worked out again to be sure."""
    found = facts.gguf.read("rope_freqs.weight").tolist()
    rope = {"rope_type": "llama3", "factor": max(found), **LLAMA3_ROPE}
    width = 2 * len(found)
    expected = [llama3_factor(theta ** (-2 * index / width), rope) for index in range(len(found))]
    if not all(math.isclose(one, other, rel_tol=1e-3) for one, other in zip(found, expected, strict=True)):
        raise FileError(f"{facts.gguf.name}: the factors of its rotary embedding are not those of Llama 3.1 to 3.3.")
    return rope


def llama3_factor(frequency: float, rope: Mapping[str, Any]) -> float:
    """By how much a frequency is lowered: not at all where it is high, by `factor` where it is low."""
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)  # within the original context
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    if turns > high:
        return 1.0
    if turns < low:
        return factor
    smooth = (turns - low) / (high - low)
    return 1 / ((1 - smooth) / factor + smooth)


def hf_name(name: str, architecture: Architecture, file: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in architecture.names:
        raise FileError(
            f"{file} holds the tensor {name[:60]!r}, which {architecture.class_name} does not have (is it a mixture of "
            "experts?). Convert it with another program, and give the folder as model_path."
        )
    layer, part, kind = match.groups()
    inner = f"{architecture.names[part]}.{kind}"
    return inner if layer is None else f"model.layers.{layer}.{inner}"


def part_of(name: str) -> str:
    """blk.3.attn_q.weight -> attn_q"""
    return name.split(".")[-2]


def is_tied(gguf: Gguf) -> bool:
    """Whether embedding and output layer are one matrix: it is stored once, or twice in two formats."""
    if HEAD not in gguf.tensors:
        return True
    head, embedding = gguf.tensors[HEAD], gguf.tensors[EMBEDDING]
    if head.shape != embedding.shape:
        return False
    every = max(1, head.shape[0] // COMPARED_ROWS)
    one, other = gguf.read(HEAD, every=every), gguf.read(EMBEDDING, every=every)
    return bool(((one - other) ** 2).sum() < TIED_BELOW**2 * (one**2).sum())


def finer_copy(gguf: Gguf) -> str:
    """Of two copies of a tied matrix the name of the larger one, which has more bits."""
    names = [name for name in (EMBEDDING, HEAD) if name in gguf.tensors]
    return max(names, key=lambda name: gguf.tensors[name].num_bytes)
