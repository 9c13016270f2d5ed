"""From a configuration to an agent that can play."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ragen.config.schema import Config
from ragen.engine.base import Engine, ModelSource, SamplingParams
from ragen.engine.registry import ENGINES
from ragen.env import TextEnv, env_class
from ragen.llm_agent.agent_proxy import AgentProxy, forced_prefix
from ragen.llm_agent.chat import Chat

NO_DRAFTS = (
    "actor_rollout_ref.rollout.drafts=True changes nothing here: the native engine alone drafts, where it decodes with "
    "CUDA graphs (docs/engines.md)."
)


NO_DTYPE = (
    "actor_rollout_ref.rollout.dtype={} changes nothing here: a training plays with the weights that it trains, and "
    "they are {}."
)


def build_agent(config: Config, *, env_types: Sequence[str], device: str | None = None) -> AgentProxy:
    """The agent of a configuration, to play with a model that is not trained meanwhile."""
    path, rollout = config.actor_rollout_ref.model.path, config.actor_rollout_ref.rollout
    if not ENGINES[rollout.name].can_train:  # the model is elsewhere
        return agent_with(config, ModelSource(path=path))
    from ragen.modeling.load import load_tokenizer
    from ragen.models.folder import check_context
    from ragen.models.resolve import resolve_model

    folder = resolve_model(path, env_types=env_types)
    check_context(folder, rollout.max_model_len, "actor_rollout_ref.rollout.max_model_len")
    tokenizer = load_tokenizer(folder)
    return agent_with(
        config, ModelSource(path=folder, tokenizer=tokenizer, device=device, max_num_seqs=rollout.max_num_seqs)
    )


def agent_with(config: Config, source: ModelSource) -> AgentProxy:
    """The agent that plays with a model; without a tokenizer it speaks text."""
    rollout = config.actor_rollout_ref.rollout
    engine = import_module(ENGINES[rollout.name].module).build(rollout, source)
    own = str(getattr(source.policy, "dtype", "auto")).removeprefix("torch.")
    notes = [
        engine.note,
        NO_DRAFTS if rollout.drafts and not engine.has_drafts else "",
        NO_DTYPE.format(rollout.dtype, own) if rollout.dtype not in ("auto", own) and source.policy is not None else "",
    ]
    engine.note = " ".join(filter(None, notes))
    chat = build_chat(config, source.tokenizer) if source.tokenizer is not None else None
    return build_proxy(config, engine, chat)


def build_chat(config: Config, tokenizer: Any) -> Chat:
    return Chat(
        tokenizer,
        forced_prefix=forced_prefix(config.agent_proxy.enable_think),
        is_growing=config.agent_proxy.context_window_mode != "single_turn",
        has_tools=has_tools(config),
    )


def has_tools(config: Config) -> bool:
    """Whether an environment that is trained on or validated with offers tools."""
    tags = {*config.es_manager.train.env_configs.tags, *config.es_manager.val.env_configs.tags}
    return any(env_class(config.custom_envs[tag].env_type).tools is not TextEnv.tools for tag in tags)


def build_proxy(config: Config, engine: Engine, chat: Chat | None) -> AgentProxy:
    rollout = config.actor_rollout_ref.rollout
    return AgentProxy(
        engine,
        chat,
        config.agent_proxy,
        format_penalty=config.es_manager.format_penalty,
        reward=config.es_manager.reward_function,
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
