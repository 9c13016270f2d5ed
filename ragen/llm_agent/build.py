"""From a configuration to an agent that can play."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config.schema import Config
from ragen.engine.base import Engine, SamplingParams
from ragen.engine.shared import LeadingEngine, follow
from ragen.errors import ConfigError
from ragen.llm_agent.agent_proxy import AgentProxy, forced_prefix
from ragen.llm_agent.chat import Chat
from ragen.types import Metrics

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(kw_only=True, slots=True)
class Agent:
    """A model behind an engine, ready to play."""

    proxy: AgentProxy
    engine: Engine
    chat: Chat | None
    model: Any = None
    """The weights, for engines that play with a model of this process."""
    load_weights: Callable[[Mapping[str, Tensor], Callable[[Sequence[int]], Tensor]], Metrics] | None = None
    """Hands new weights to an engine that has a copy of its own; the second argument scores a text with the model."""
    follow: Callable[[], None] | None = None
    """Takes part in a rollout of the process that leads an engine of several processes; None where this one plays."""


def build_agent(config: Config, *, env_types: Sequence[str], device: str | None = None) -> Agent:
    """The agent that `actor_rollout_ref.rollout.name` asks for."""
    name = config.actor_rollout_ref.rollout.name
    if name not in BUILDERS:
        raise ConfigError(
            f"actor_rollout_ref.rollout.name={name} cannot play by itself here. Use one of: {', '.join(BUILDERS)}."
        )
    return BUILDERS[name](config, env_types, device)


def build_chat(config: Config, tokenizer: Any) -> Chat:
    return Chat(
        tokenizer,
        forced_prefix=forced_prefix(config.agent_proxy.enable_think),
        is_growing=config.agent_proxy.context_window_mode != "single_turn",
    )


def build_proxy(config: Config, engine: Engine, chat: Chat | None) -> AgentProxy:
    rollout = config.actor_rollout_ref.rollout
    return AgentProxy(
        engine,
        chat,
        config.agent_proxy,
        format_penalty=config.es_manager.format_penalty,
        response_length=rollout.response_length,
        max_model_len=rollout.max_model_len,
    )


def sampling_params(config: Config, chat: Chat | None, *, is_validation: bool) -> SamplingParams:
    """How replies are drawn in training or in validation."""
    rollout = config.actor_rollout_ref.rollout
    source = rollout.val_kwargs if is_validation else rollout
    return SamplingParams(
        max_tokens=rollout.response_length,
        temperature=source.temperature if source.do_sample else 0.0,
        top_p=source.top_p,
        top_k=source.top_k,
        stop_token_ids=chat.stop_token_ids if chat else (),
        stop_strings=tuple(rollout.stop_strings),
    )


def native_agent(config: Config, model: Any, tokenizer: Any, *, max_num_seqs: int) -> Agent:
    """An agent that plays with the weights of `model`, in this process."""
    from ragen.engine.native.engine import native_engine

    rollout = config.actor_rollout_ref.rollout
    engine = native_engine(
        model,
        tokenizer,
        enforce_eager=rollout.enforce_eager,
        free_cache=rollout.free_cache_engine,
        max_num_seqs=max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    chat = build_chat(config, tokenizer)
    return Agent(proxy=build_proxy(config, engine, chat), engine=engine, chat=chat, model=model)


def vllm_agent(
    config: Config,
    path: Path | str,
    tokenizer: Any,
    *,
    dtype: torch.dtype,
    has_weights: bool,
    joins_group: bool = False,
) -> Agent:
    """An agent that plays with vLLM; without `has_weights` a trainer hands them over before the first episode.

    `joins_group`: this is one of several processes that train together.
    """
    from ragen.engine.vllm.engine import VllmEngine

    rollout = config.actor_rollout_ref.rollout
    engine = VllmEngine(
        path,
        tokenizer,
        dtype=dtype,
        has_weights=has_weights,
        max_num_seqs=rollout.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        tensor_parallel_size=rollout.tensor_model_parallel_size,
        enforce_eager=rollout.enforce_eager,
        free_cache=rollout.free_cache_engine,
        canary_bound=rollout.canary_bound,
        joins_group=joins_group,
    )
    chat = build_chat(config, tokenizer)
    is_shared = joins_group and rollout.tensor_model_parallel_size > 1
    player: Engine = LeadingEngine(engine, engine.broadcast) if is_shared and engine.is_leader else engine
    return Agent(
        proxy=build_proxy(config, player, chat),
        engine=player,
        chat=chat,
        load_weights=engine.load_weights,
        follow=partial(follow, engine, engine.broadcast) if is_shared and not engine.is_leader else None,
    )


def _native(config: Config, env_types: Sequence[str], device: str | None) -> Agent:
    from ragen.modeling.load import load_model, load_tokenizer
    from ragen.models.folder import check_context
    from ragen.models.resolve import resolve_model

    path = resolve_model(config.actor_rollout_ref.model.path, env_types=env_types)
    check_context(path, config.actor_rollout_ref.rollout.max_model_len, "actor_rollout_ref.rollout.max_model_len")
    model, tokenizer = load_model(path, device=device), load_tokenizer(path)
    return native_agent(config, model, tokenizer, max_num_seqs=config.actor_rollout_ref.rollout.max_num_seqs)


def _vllm(config: Config, env_types: Sequence[str], device: str | None) -> Agent:
    from ragen.modeling.load import default_device, load_tokenizer, precision
    from ragen.models.folder import check_context
    from ragen.models.resolve import resolve_model

    path = resolve_model(config.actor_rollout_ref.model.path, env_types=env_types)
    check_context(path, config.actor_rollout_ref.rollout.max_model_len, "actor_rollout_ref.rollout.max_model_len")
    dtype = precision(device or default_device())
    return vllm_agent(config, path, load_tokenizer(path), dtype=dtype, has_weights=True)


def _api(config: Config, env_types: Sequence[str], device: str | None) -> Agent:
    from ragen.engine.api.engine import ApiEngine

    api = config.actor_rollout_ref.rollout.api
    engine = ApiEngine(
        api.model or config.actor_rollout_ref.model.path,
        base_url=api.base_url,
        max_concurrency=api.max_concurrency,
        timeout_s=api.timeout_s,
        max_retries=api.max_retries,
    )
    return Agent(proxy=build_proxy(config, engine, None), engine=engine, chat=None)


BUILDERS = {"native": _native, "vllm": _vllm, "api": _api}
