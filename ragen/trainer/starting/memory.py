"""How much memory a run will need, estimated before anything is loaded, and how much it held."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from ragen.config.schema import Config
from ragen.engine.drafts import MOST_ROWS
from ragen.engine.registry import ENGINES
from ragen.errors import ConfigError
from ragen.modeling.families import family_of
from ragen.modeling.host_memory import free_host_memory

GIB = 2**30


def memory_advice(config: Config, device: str = "cuda", *, has_room_for_models: bool = True) -> str:
    """What lowers the need of this run on a device, in the order in which it is worth trying.

    Where weights and optimizer alone are too large, smaller passes and caches are no way out.
    """
    parts = config.actor_rollout_ref
    rollout, actor, engine = parts.rollout, parts.actor, ENGINES[parts.rollout.name]
    passes = {
        "actor_rollout_ref.model.enable_gradient_checkpointing=True": not parts.model.enable_gradient_checkpointing,
        "actor_rollout_ref.rollout.max_model_len no larger than your episodes": True,
        "smaller actor_rollout_ref.actor.ppo_max_token_len_per_gpu": actor.use_dynamic_bsz,
        "smaller actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": (
            not actor.use_dynamic_bsz and actor.ppo_micro_batch_size_per_gpu > 1
        ),
        "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True": not actor.entropy_from_logits_with_chunking,
        "actor_rollout_ref.rollout.free_cache_engine=True": not rollout.free_cache_engine,
        "smaller actor_rollout_ref.rollout.gpu_memory_utilization": engine.has_own_weights,
        "smaller actor_rollout_ref.rollout.max_num_seqs": not engine.has_own_weights,
    }
    models = {
        "algorithm.adv_estimator=grpo (no critic)": config.uses_critic,
        "lora.rank=64": config.lora.rank == 0,
        "actor_rollout_ref.actor.fsdp_config.offload_policy=True (slower; the CPU's memory instead)": (
            device != "cpu" and not config.offloaded["actor"]
        ),
    }
    advice = passes | models if has_room_for_models else models | {"a smaller model_path": True}
    return "To need less: " + "; ".join(text for text, is_open in advice.items() if is_open) + "."


OFFLOAD_KEYS = {"critic": "critic", "ref": "actor_rollout_ref.ref", "actor": "actor_rollout_ref.actor"}
"""Role of a model -> the section with its fsdp_config."""


def host_advice(config: Config) -> str:
    """What lowers the need of the CPU's memory: shards that stay on the GPU, or the copy of a sleeping engine."""
    rollout, offloaded = config.actor_rollout_ref.rollout, config.offloaded
    roles = [role for role in OFFLOAD_KEYS if offloaded.get(role)]
    ways = [f"{OFFLOAD_KEYS[role]}.fsdp_config.offload_policy=False" for role in roles[:1]]
    if ENGINES[rollout.name].has_own_weights and rollout.free_cache_engine:
        ways.append("actor_rollout_ref.rollout.free_cache_engine=False")
    return f"Keep more on the GPU: {' or '.join(ways)}."


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose, at the peak of a training step."""

    weights: float
    """Weights of actor, critic and reference."""
    optimizer: float
    """Moments, and float32 copies of bfloat16 weights, of what is trained."""
    cache: float
    """Keys and values of the episodes played at once; or the whole share of an engine with a copy of the weights."""
    engine: float = 0.0
    """What the engine's captured graphs hold from the first rollout on: results of its largest pass, and logits."""
    stays: bool = False
    """The cache stays while a model trains (rollout.free_cache_engine=False)."""
    gradients: float
    """Float32 gradients of the model that is being updated; gradient analysis holds a second set, and the signs of its
    sketches, a byte for each weight. It takes more where that is free, to be faster."""
    activations: float
    """One micro batch of the longest sequences, and its logits."""
    host: float = 0.0
    """Weights, gradients and moments that are in the CPU's memory instead; not counted in the total."""

    @property
    def total(self) -> float:
        # The cache is gone while a model trains, if it may; gradients and activations are while it plays.
        training = self.gradients + self.activations
        peak = self.cache + training if self.stays else max(self.cache, training)
        return self.weights + self.optimizer + self.engine + peak

    def __str__(self) -> str:
        def listed(*names: str) -> str:
            return ", ".join(f"{name} {getattr(self, name) / GIB:.2f}" for name in names)

        always, training = ("weights", "optimizer", "engine"), ("gradients", "activations")
        parts = (
            listed(*always, "cache", *training)
            if self.stays
            else f"{listed(*always)}; beside them to play: {listed('cache')}, or to train: {listed(*training)}"
        )
        host = f" and {self.host / GIB:.1f} GiB of the CPU's memory" if self.host else ""
        return f"about {self.total / GIB:.2f} GiB ({parts}){host}"


def row_bytes(model_config: Any, max_model_len: int, bytes_per_value: int) -> int:
    """Keys and values of one episode of the greatest length.

    A model without attention has none; it is refused when it has been loaded.
    """
    if not (num_heads := getattr(model_config, "num_attention_heads", None)):
        return 0
    heads = getattr(model_config, "num_key_value_heads", None) or num_heads
    head_dim = getattr(model_config, "head_dim", None) or model_config.hidden_size // num_heads
    return 2 * max_model_len * model_config.num_hidden_layers * heads * head_dim * bytes_per_value


GRAPH_WORKSPACE = 64 * 2**20
"""What cuBLAS and the kernels of the graph engine keep, whatever the model."""


def graph_bytes(model_config: Any, *, pass_tokens: int, num_slots: int, drafts: bool = False) -> float:
    """What the graph engine holds beside its cache (engine/graph/decode.py).

    Its graphs share one pool, which is as large as the largest pass: for each prompt token four vectors of the hidden
    size (state, norm, output of a layer's two halves) and the gated product. The logits of all slots and a workspace
    lie beside it; those of a check of drafts do, too, unless they fit in (engine/graph/verify.py). In ten shapes on an
    H200 it held 0.9 to 1.25 times as much, without drafts.
    """
    per_token = 4 * model_config.hidden_size + _mlp_size(model_config)
    draft_rows = min(MOST_ROWS, 8 * num_slots) if drafts and num_slots < MOST_ROWS else 0
    values = pass_tokens * per_token + (num_slots + draft_rows) * model_config.vocab_size
    return float(GRAPH_WORKSPACE + 2 * values)


def estimate_memory(
    config: Config, model_config: Any, num_parameters: int, *, device_memory: float | None
) -> MemoryEstimate:
    """The need of each device of a run with a model of that shape; `device_memory` is that of a GPU, None on a CPU.

    On a GPU weights are bfloat16, their float32 copies and moments cost 12 bytes for each trained parameter, and the
    cache is held below rollout.gpu_memory_utilization. On a CPU everything is float32 and there are no copies.
    Several devices hold a shard each, a whole policy to play with, and the layer of a pass that is gathered. Shards of
    an offloaded model are in the CPU's memory; on a CPU that changes nothing.
    """
    is_cuda, rollout = device_memory is not None, config.actor_rollout_ref.rollout
    bytes_per_value, num_ranks = 2 if is_cuda else 4, config.num_ranks
    trained = num_parameters if config.lora.rank == 0 else _adapter_size(config.lora.rank, model_config)
    # Sharded weights of a GPU, without adapters, exist in float32 only, which is counted with the optimizer.
    is_rounded = is_cuda and config.lora.rank == 0
    cache = _cache_bytes(config, model_config, device_memory)
    activations = _activation_bytes(config, model_config, is_cuda=is_cuda)
    weights = optimizer = gradients = host = 0.0
    for role, is_offloaded in config.offloaded.items():
        is_trained = role != "ref"
        is_in_optimizer = config.uses_fsdp and is_trained and is_rounded
        own = 0 if is_in_optimizer else num_parameters * bytes_per_value / num_ranks
        moments = trained * (12 if is_rounded else 8) / num_ranks if is_trained else 0.0
        gradient = 4 * trained / num_ranks if is_trained else 0.0
        if role == "actor" and config.trainer.gradient_analysis_mode:
            gradient += gradient + trained  # every rank has all signs
        if is_offloaded and is_cuda:
            host += own + moments + gradient
        else:
            weights, optimizer, gradients = weights + own, optimizer + moments, max(gradients, gradient)
    if config.uses_fsdp:
        weights += num_parameters * bytes_per_value
        layer = num_parameters / model_config.num_hidden_layers
        embedding = model_config.vocab_size * model_config.hidden_size
        # Weights of embedding and two layers, one of them fetched ahead, and the gradient of a layer.
        activations += (embedding + 2 * layer) * bytes_per_value + 4 * layer
    if is_cuda and rollout.free_cache_engine and ENGINES[rollout.name].has_own_weights:
        host += num_parameters * 2 / config.ranks_per_engine  # asleep, the engine keeps its copy there
    return MemoryEstimate(
        weights=weights,
        optimizer=optimizer,
        cache=cache,
        engine=_engine_bytes(config, model_config, cache) if is_cuda else 0.0,
        stays=is_cuda and not rollout.free_cache_engine,
        gradients=gradients,
        activations=activations,
        host=host,
    )


def _cache_bytes(config: Config, model_config: Any, device_memory: float | None) -> float:
    """Keys and values of the episodes of one device, as many as are played at once."""
    rollout, sets = config.actor_rollout_ref.rollout, (config.es_manager.train, config.es_manager.val)
    rows = min(rollout.max_num_seqs, max(ceil(envs.env_groups / config.num_ranks) * envs.group_size for envs in sets))
    cache = rows * row_bytes(model_config, rollout.max_model_len, 4 if device_memory is None else 2)
    if device_memory is None:
        return cache
    share = rollout.gpu_memory_utilization * device_memory
    return share if ENGINES[rollout.name].has_own_weights else min(cache, share)


def _engine_bytes(config: Config, model_config: Any, cache: float) -> float:
    """What the graph engine holds beside its cache, where it is the one that plays."""
    rollout = config.actor_rollout_ref.rollout
    has_graphs = family_of(model_config).has_graph_decoder and not rollout.enforce_eager
    if not has_graphs or ENGINES[rollout.name].has_own_weights:
        return 0.0
    slots = min(rollout.max_num_seqs, int(cache // row_bytes(model_config, rollout.max_model_len, 2)) or 1)
    pass_tokens = rollout.max_num_batched_tokens
    return graph_bytes(model_config, pass_tokens=pass_tokens, num_slots=slots, drafts=rollout.drafts)


def _activation_bytes(config: Config, model_config: Any, *, is_cuda: bool) -> float:
    """One micro batch of the longest sequences: what its layers keep, and its logits."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    samples = _most_samples(config) if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    bytes_per_value = 2 if is_cuda else 4
    tokens, sampled = samples * rollout.max_model_len, samples * config.agent_proxy.max_turn * rollout.response_length
    if actor.use_dynamic_bsz:
        tokens = min(tokens, max(actor.ppo_max_token_len_per_gpu, rollout.max_model_len))
    layers, hidden_size, mlp = model_config.num_hidden_layers, model_config.hidden_size, _mlp_size(model_config)
    is_fused = is_cuda and family_of(model_config).has_fused_training
    per_layer = (8 * hidden_size + 3 * mlp if is_fused else 16 * hidden_size + 4 * mlp) * bytes_per_value
    kept_layers = 1 if config.actor_rollout_ref.model.enable_gradient_checkpointing else layers
    hidden = tokens * (kept_layers * per_layer + layers * hidden_size * bytes_per_value)
    sampled = min(tokens, sampled)
    if is_fused and not config.uses_fsdp:  # logits of a chunk, and the gradient of the output layer twice
        return hidden + 2 * (min(2048, sampled) + 2 * hidden_size) * model_config.vocab_size
    logit_rows = min(2048, sampled) if actor.entropy_from_logits_with_chunking else sampled
    return hidden + 3 * 4 * logit_rows * model_config.vocab_size


def _most_samples(config: Config) -> int:
    """Samples of a pass that is bounded by its tokens: a mini batch, or all that gradient analysis looks at."""
    trainer, agent, train = config.trainer, config.agent_proxy, config.es_manager.train
    most = config.actor_rollout_ref.actor.ppo_mini_batch_size
    if trainer.gradient_analysis_mode:
        groups = trainer.gradient_analysis_env_groups or train.env_groups
        episodes = groups * (trainer.gradient_analysis_group_size or train.group_size)
        most = max(most, episodes * (1 if agent.context_window_mode == "full" else agent.max_turn))
    return ceil(most / config.num_ranks)


def _mlp_size(model_config: Any) -> int:
    return getattr(model_config, "intermediate_size", None) or 4 * model_config.hidden_size


def _adapter_size(rank: int, model_config: Any) -> int:
    """Parameters of rank-r adapters on every linear layer, roughly."""
    hidden_size = model_config.hidden_size
    return model_config.num_hidden_layers * rank * (11 * hidden_size + 3 * _mlp_size(model_config))


def device_memory(device: str) -> tuple[float, float | None]:
    """Free bytes, and the whole memory of a GPU (None on a CPU)."""
    import torch

    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        return float(free), float(total)
    return free_host_memory(), None


def peak_memory_share() -> float:
    """The most that this process has held so far of the memory of its GPU, or without one of the machine's."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved() / torch.cuda.get_device_properties().total_memory
    held = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def cache_rows(config: Config, model_config: Any, device: str) -> int:
    """Episodes that may be decoded at once: rollout.max_num_seqs, or what gpu_memory_utilization has room for."""
    rollout = config.actor_rollout_ref.rollout
    _, total = device_memory(device)
    if total is None or ENGINES[rollout.name].has_own_weights:  # which divides its share itself
        return rollout.max_num_seqs
    room = rollout.gpu_memory_utilization * total / row_bytes(model_config, rollout.max_model_len, 2)
    return max(1, min(rollout.max_num_seqs, int(room)))


def check_engine_share(config: Config, num_parameters: int, gpu_memory: float | None) -> None:
    """An engine's copy of the weights must fit into its share of a GPU."""
    rollout = config.actor_rollout_ref.rollout
    if not ENGINES[rollout.name].has_own_weights or gpu_memory is None:
        return
    copy, share = num_parameters * 2 / config.ranks_per_engine, rollout.gpu_memory_utilization * gpu_memory
    if copy >= share:
        raise ConfigError(
            f"actor_rollout_ref.rollout.gpu_memory_utilization={rollout.gpu_memory_utilization:g} gives {rollout.name} "
            f"{share / GIB:.1f} GiB. Its copy of the weights alone needs {copy / GIB:.1f} GiB: raise it above "
            f"{copy / gpu_memory:.2f}."
        )


FULL_PASS = 16
"""Samples of a pass beyond which little is gained: about 16,000 tokens, which keep an H200 busy at 0.5B."""
WORTH_SAYING = 4
"""Times the samples of a pass, from where on larger ones are worth a line."""


def larger_passes(config: Config, model_config: Any, num_parameters: int, *, free: float, total: float) -> str:
    """What a GPU has room for that waits for small passes; empty where there is nothing to gain.

    With 16 GiB to spare, passes of 1 sample -> micro_batch_size_per_gpu=16.
    """
    parts = config.actor_rollout_ref
    now, most = parts.actor.ppo_micro_batch_size_per_gpu, parts.actor.ppo_mini_batch_size // config.num_ranks
    fitting = now
    while not parts.actor.use_dynamic_bsz and 2 * fitting <= min(FULL_PASS, most):
        actor = replace(parts.actor, ppo_micro_batch_size_per_gpu=2 * fitting)
        larger = replace(config, actor_rollout_ref=replace(parts, actor=actor))
        if estimate_memory(larger, model_config, num_parameters, device_memory=total).total > free / 2:
            break
        fitting *= 2
    if fitting < WORTH_SAYING * now:
        return ""
    samples = "1 sample" if now == 1 else f"{now} samples"
    return (
        f"\nPasses of {samples} let the GPU wait: micro_batch_size_per_gpu={fitting} fits, trains the same but for "
        "rounding, and is several times as fast."
    )


def check_memory(config: Config, path: Path | str, device: str) -> str:
    """A line about the need, and one about room that is left unused; a ConfigError with advice when weights and
    optimizer alone cannot fit."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    with torch.device("meta"):
        num_parameters = AutoModelForCausalLM.from_config(model_config).num_parameters()
    free, total = device_memory(device)
    if total is None:
        free /= config.trainer.n_gpus_per_node  # the processes of a machine share its memory
    need = estimate_memory(config, model_config, num_parameters, device_memory=total)
    if need.weights + need.optimizer > free:
        advice = memory_advice(config, device, has_room_for_models=False)
        raise ConfigError(f"This run needs {need}, {free / GIB:.1f} GiB are free on {device}. {advice}")
    check_engine_share(config, num_parameters, total)
    if need.host and need.host > (room := device_memory("cpu")[0] / config.trainer.n_gpus_per_node):
        raise ConfigError(
            f"This run needs {need}, of which {room / GIB:.1f} GiB are free for each GPU. {host_advice(config)}"
        )
    asked = config.system.CUDA_VISIBLE_DEVICES
    where = f"{device}, because torch finds no GPU {asked}" if device == "cpu" and asked else device
    line = f"Memory: {need} of {free / GIB:.1f} GiB free on {where}."
    if need.total > free:
        return f"{line} It may not fit. {memory_advice(config, device)}"
    if total is None:
        return line
    return line + larger_passes(config, model_config, num_parameters, free=free, total=total)
