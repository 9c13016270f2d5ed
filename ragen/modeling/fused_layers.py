"""Decoder layers of the update on a GPU: within packed passes the modules of Hugging Face that are chains of small
kernels run as one kernel each.

Only the `forward` of the modules is exchanged, so adapters, hooks, sharding and gradient checkpointing stay as they
are; families that were not checked (families.py) run as they come.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from ragen.modeling.families import family_of


@contextmanager
def fused_layers(model: Any, device: torch.device) -> Iterator[None]:
    """Within: the model's norms, attention inputs and gated layers are fused, where that is possible.

    `device` is where the model computes; its weights may be elsewhere between the passes.
    """
    modules = _replacements(model) if _can_fuse(model, device) else []
    for module, forward in modules:
        module.forward = partial(forward, module)
    try:
        yield
    finally:
        for module, _ in modules:
            del module.forward


def _can_fuse(model: Any, device: torch.device) -> bool:
    return device.type == "cuda" and not unfused_reason(model)


def unfused_reason(model: Any) -> str:
    """Why the layers of a model are not fused on a GPU; empty where they are."""
    config = model.config
    if not family_of(config).has_fused_training:
        return f"the family {config.model_type} is not described"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    head_dim = model.base_model.layers[0].self_attn.head_dim
    if head_dim & (head_dim - 1):
        return f"its head size {head_dim} is not a power of two"  # as the blocks of a kernel are
    return ""


def fusable_head(model: Any) -> Tensor | None:
    """The matrix of an output layer that is nothing but one, [vocab, dim]; None where log-probs are not fused."""
    head = model.get_output_embeddings()
    # A sharded matrix is whole only while its module runs.
    is_plain = type(head) is nn.Linear and head.bias is None and not hasattr(model, "unshard")
    return head.weight if is_plain and _can_fuse(model, head.weight.device) else None


def _replacements(model: Any) -> list[tuple[nn.Module, Callable[..., Any]]]:
    body = model.base_model
    found: list[tuple[nn.Module, Callable[..., Any]]] = [(body.norm, _norm)]
    for layer in body.layers:
        attention = layer.self_attn
        norms = [layer.input_layernorm, layer.post_attention_layernorm]
        norms += [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
        found += [(attention, _attention), (layer.mlp, _mlp), *((norm, _norm) for norm in norms)]
    return found


def _norm(module: Any, hidden_states: Tensor) -> Tensor:
    from ragen.modeling.kernels.norm import rms_norm

    return rms_norm(hidden_states, module.weight, module.variance_epsilon)


def _mlp(module: Any, x: Tensor) -> Tensor:
    from ragen.modeling.kernels.activation import silu_mul

    return module.down_proj(silu_mul(module.gate_proj(x), module.up_proj(x)))


def _attention(
    module: Any,
    hidden_states: Tensor,  # [1, tokens, dim]
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    from ragen.modeling.kernels.rotary import rotate

    cos, sin = (table[0] for table in position_embeddings)
    query, key, value = (x.unflatten(1, (-1, module.head_dim)) for x in _projected(module, hidden_states[0]))
    if hasattr(module, "q_norm"):
        query, key = module.q_norm(query), module.k_norm(key)
    attend = AttentionInterface()[module.config._attn_implementation]
    heads = (x.transpose(0, 1)[None] for x in (rotate(query, cos, sin), rotate(key, cos, sin), value))
    out, _ = attend(
        module,
        *heads,
        attention_mask,
        scaling=module.scaling,
        sliding_window=_window(module),
        **kwargs,
    )
    return module.o_proj(out.flatten(2)), None


def _window(module: Any) -> int | None:
    """The sliding window of a layer: its own where layers differ (Qwen2), else that of the model (Mistral)."""
    return getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))


def _projected(module: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values, [tokens, heads * dim] each; plain projections in one matrix product."""
    linears = (module.q_proj, module.k_proj, module.v_proj)
    # A `forward` of its own: slices of the row have weights of their own (slices.py).
    if any(type(linear) is not nn.Linear or "forward" in vars(linear) for linear in linears):
        return tuple(linear(x) for linear in linears)
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    joined = nn.functional.linear(x, torch.cat([linear.weight for linear in linears]), bias)
    return joined.split([linear.out_features for linear in linears], dim=1)
