"""From a configuration to vLLM, in one process or in several that share it.

Tested in tests/vllm/test_training.py and tests/vllm/test_ranks.py.
"""

from __future__ import annotations

from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.engine.base import Engine, ModelSource
from ragen.engine.shared import SharedEngine
from ragen.engine.vllm.engine import VllmEngine
from ragen.modeling.load import default_device, precision


def build(rollout: RolloutConfig, source: ModelSource) -> Engine:
    """vLLM with the weights of the folder; where a policy is trained, its weights come before the first episode."""
    policy = source.policy
    engine = VllmEngine(
        source.path,
        source.tokenizer,
        dtype=precision(source.device or default_device()) if policy is None else policy.dtype,
        has_weights=policy is None,
        max_num_seqs=source.max_num_seqs,
        max_model_len=rollout.max_model_len,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        tensor_parallel_size=rollout.tensor_model_parallel_size,
        enforce_eager=rollout.enforce_eager,
        free_cache=rollout.free_cache_engine,
        canary_bound=rollout.canary_bound,
        joins_group=source.joins_group,
    )
    if source.joins_group and rollout.tensor_model_parallel_size > 1:
        return SharedEngine(engine, engine.broadcast, is_leader=engine.is_leader)
    return engine
