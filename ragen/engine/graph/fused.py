"""A decoder as the graph engine runs it: the model's own weights, with neighbouring projections in one buffer.

Queries, keys and values are one matrix product instead of three, gate and up projection one instead of two. The
fused matrix is not a copy: the model's parameters become slices of it, so an update of the model is seen here at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ragen.modeling.families import family_of

STATIC_ROPE = {"default", "linear", "llama3", "yarn"}
"""Rotary embeddings whose angles depend on the position only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The weights of a decoder layer; matrices are [out, in]."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None
    """Norms of queries and keys (Qwen3)."""
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """Everything a forward pass needs."""

    embedding: Tensor
    layers: list[Layer]
    norm: Tensor
    head: Tensor
    eps: float
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    rotary: Any
    """The model's own module for cosines and sines."""

    def rotary_tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first positions, [length, head_dim / 2]; rounded as the model rounds them."""
        positions = torch.arange(length, device=self.embedding.device)[None]
        with torch.no_grad():
            cos, sin = self.rotary(self.embedding[:1], positions)
        return tuple(table[0, :, : self.head_dim // 2].contiguous() for table in (cos, sin))  # type: ignore[return-value]


def unsupported_reason(model: Any) -> str:
    """Why the graph engine cannot run a model; empty when it can."""
    config = model.config
    if not family_of(config).has_graph_decoder:
        return f"the family {config.model_type} is not described"
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in STATIC_ROPE:
        return f"its rotary embedding ({rope_type}) changes with the length of the context"
    if getattr(config, "sliding_window", None) is not None:
        return "its attention has a sliding window"
    if any("lora_" in name for name, _ in model.named_parameters()):
        return "it has an adapter"
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        unbiased = (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        linears = (attention.q_proj, attention.k_proj, attention.v_proj, *unbiased)
        if any(type(linear) is not nn.Linear or type(linear.weight.data) is not Tensor for linear in linears):
            return "its projections are not plain matrices"
        if any(linear.bias is not None for linear in unbiased):
            return "its output projections have biases"
        if not isinstance(mlp.act_fn, nn.SiLU) and type(mlp.act_fn).__name__ != "SiLUActivation":
            return "its activation is not SiLU"
    head_dim = model.model.layers[0].self_attn.head_dim
    if head_dim < 32 or head_dim & (head_dim - 1):
        return f"its head size {head_dim} is not a power of two of at least 32"
    return ""


def fuse(model: Any) -> Decoder:
    """Read a model without `unsupported_reason`; its neighbouring projections move into common buffers."""
    config, body = model.config, model.model
    first = body.layers[0].self_attn
    layers = []
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        linears = [attention.q_proj, attention.k_proj, attention.v_proj]
        has_norms = hasattr(attention, "q_norm")
        layers.append(
            Layer(
                input_norm=layer.input_layernorm.weight.data,
                qkv=_joined([linear.weight for linear in linears]),
                qkv_bias=_joined([linear.bias for linear in linears]) if attention.q_proj.bias is not None else None,
                head_norms=(attention.q_norm.weight.data, attention.k_norm.weight.data) if has_norms else None,
                output=attention.o_proj.weight.data,
                mlp_norm=layer.post_attention_layernorm.weight.data,
                gate_up=_joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
                down=mlp.down_proj.weight.data,
            )
        )
    return Decoder(
        embedding=body.embed_tokens.weight.data,
        layers=layers,
        norm=body.norm.weight.data,
        head=model.get_output_embeddings().weight.data,
        eps=config.rms_norm_eps,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=first.head_dim,
        scale=first.scaling,
        rotary=body.rotary_emb,
    )


@torch.no_grad()
def _joined(parameters: Sequence[nn.Parameter]) -> Tensor:
    """One buffer with the parameters below each other; they become slices of it, unless they are so already."""
    first = parameters[0].data
    shape = (sum(len(p) for p in parameters), *first.shape[1:])
    expected = first.data_ptr()
    is_joined = first.untyped_storage().data_ptr() == expected and all(p.is_contiguous() for p in parameters)
    for parameter in parameters:
        is_joined &= parameter.data_ptr() == expected
        expected += parameter.numel() * parameter.element_size()
    size = first.untyped_storage().nbytes()
    if is_joined and size == shape[0] * first[0].numel() * first.element_size():
        return first.as_strided(shape, (first.stride(0), *first.stride()[1:]))
    buffer = torch.empty(shape, dtype=first.dtype, device=first.device)
    start = 0
    for parameter in parameters:
        part = buffer[start : start + len(parameter)]
        part.copy_(parameter)
        parameter.data = part
        start += len(parameter)
    return buffer


def weight_addresses(model: Any) -> tuple[int, ...]:
    """Where the weights lie; captured graphs hold as long as this does."""
    return tuple(parameter.data_ptr() for parameter in model.parameters())
