"""What the engine uses of vLLM beyond its documented interface, and which versions have it.

All else goes through `vllm.LLMEngine`, `SamplingParams`, `collective_rpc` with a worker extension, sleep and wake-up,
and logits processors. A part that a version lacks is named together with the versions that have it.

Tested in tests/vllm/test_inner.py.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import torch.distributed as dist

from ragen.errors import EngineError

vllm: Any = import_module("vllm")
OLDEST, NEWEST = (0, 24), (0, 32)
"""Minor versions that the tests of this engine ran with, in their builds for a CPU; those between were not run."""
REMEDY = "Install one of those (docs/engines.md), or use actor_rollout_ref.rollout.name=native."
_QUEUES: dict[int, list[Any]] = {}
"""Engine -> the queues that are kept."""


def tested_versions() -> str:
    """0.24 and 0.32"""
    return " and ".join(".".join(map(str, version)) for version in (OLDEST, NEWEST))


def version_note() -> str:
    """What to say of the version that is installed; nothing from the oldest to the newest that was tested."""
    if OLDEST <= tuple(vllm.__version_tuple__[:2]) <= NEWEST:
        return ""
    return f"vLLM {vllm.__version__} is installed; this engine was tested with {tested_versions()}, on a CPU."


def part(module: str, name: str) -> Any:
    """`name` of a module of vLLM's; dots in it are attributes of attributes."""
    try:
        found = import_module(module)
        for attribute in name.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"vLLM {vllm.__version__} has no {module}.{name}, which vLLM {tested_versions()} have. {REMEDY}"
        ) from error
    return found


def group_executor() -> type:
    """Runs a shard of the model in this process, as a member of the process group that is there."""
    base = part("vllm.v1.executor.uniproc_executor", "ExecutorWithExternalLauncher")
    part("vllm.v1.executor.uniproc_executor", "ExecutorWithExternalLauncher._distributed_args")

    class GroupExecutor(base):
        def _distributed_args(self) -> tuple[str, int, int]:
            # On a CPU the first names the memory through which processes talk, which killed ones leave behind. With a
            # name of its own in each, vLLM uses the process group. The last is the GPU: Ray shows each its own only.
            return f"env:{os.getpid()}", dist.get_rank(), 0

    return GroupExecutor


def drop_shared_memory() -> None:
    """Memory to send objects through: not used where each process adds its own requests, and left behind by kills."""
    part("vllm.distributed.parallel_state", "get_tp_group")().mq_broadcaster = None


def hold_queues(engine: Any) -> None:
    """Keep the queues to vLLM's processes: collecting one that leads to a dead process waits for it without end."""
    executor = engine.model_executor
    for name in ("rpc_broadcast_mq", "response_mqs"):
        if not hasattr(executor, name):
            raise EngineError(f"vLLM {vllm.__version__}: {type(executor).__name__} has no {name}. {REMEDY}")
    _QUEUES[id(engine)] = [executor.rpc_broadcast_mq, *executor.response_mqs]


def shut_down(engine: Any) -> None:
    """End vLLM and its processes, all of which live; `LLMEngine` itself offers no way."""
    part("vllm.v1.engine.core_client", "EngineCoreClient.shutdown")
    _QUEUES.pop(id(engine), None)
    engine.engine_core.shutdown()
