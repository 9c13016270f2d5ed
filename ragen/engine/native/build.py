"""From a model to the fastest engine of this process that can run it."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.engine.base import Engine, ModelSource
from ragen.engine.graph.fused import unsupported_reason
from ragen.engine.native.engine import NativeEngine
from ragen.engine.native.self_test import check_decoding
from ragen.modeling.families import family_of
from ragen.modeling.load import load_model


def build(rollout: RolloutConfig, source: ModelSource) -> Engine:
    model = source.policy
    if model is None:
        model = load_model(source.path, device=source.device, dtype=rollout.dtype)
    engine = native_engine(
        model,
        source.tokenizer,
        enforce_eager=rollout.enforce_eager,
        free_cache=rollout.free_cache_engine,
        drafts=rollout.drafts,
        max_num_seqs=source.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    if not family_of(model.config).has_graph_decoder:  # those are checked, with both engines
        check_decoding(model, is_trained=source.policy is not None)
    return engine


def native_engine(
    model: Any,
    tokenizer: Any = None,
    *,
    enforce_eager: bool = False,
    free_cache: bool = True,
    drafts: bool = False,
    **sizes: int,
) -> Engine:
    """The graph engine where it can run the model, else the plain one; `sizes` are those of `SessionEngine`."""
    weight = next(model.parameters())
    is_fast = weight.is_cuda and weight.dtype in (torch.bfloat16, torch.float16) and not enforce_eager
    reason = plain_reason(model) if is_fast else ""
    if is_fast and not reason:
        from ragen.engine.graph.engine import GraphEngine

        return GraphEngine(model, tokenizer, free_cache=free_cache, drafts=drafts, **sizes)
    engine = NativeEngine(model, tokenizer, **sizes)
    if reason:
        engine.note = f"The graph engine cannot run this model: {reason}. Replies are decoded without it, slower."
    return engine


def plain_reason(model: Any) -> str:
    """Why a model on a GPU gets the plain engine; empty where it gets the graph engine."""
    return "triton is not installed" if importlib.util.find_spec("triton") is None else unsupported_reason(model)
