"""The GPUs a run asks for, against those there are. Known before torch is loaded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from ragen.config.schema import Config
from ragen.errors import ConfigError, MissingExtra, install_command
from ragen.tracking.machine import VISIBLE as VARIABLE
from ragen.tracking.machine import query_gpus


def check_devices(config: Config) -> None:
    """Refuse GPUs that this machine does not have, and sharded models where what they need is missing."""
    if config.trainer.nnodes > 1 and config.ray_kwargs.ray_init.address is None:
        raise ConfigError(
            f"trainer.nnodes={config.trainer.nnodes}: several machines need a Ray cluster. Run `ray start --head` on "
            "the first and `ray start --address=...` on the others, and set ray_kwargs.ray_init.address=auto."
        )
    if config.uses_fsdp and importlib.util.find_spec("ray") is None:
        raise MissingExtra(f"{sharding_reason(config)}: sharded models need Ray. Run: {install_command('ray')}")
    if config.ray_kwargs.ray_init.address is None:  # a cluster has the GPUs of other machines
        check_gpu_ids(config)


def sharding_reason(config: Config) -> str:
    """What makes a run shard its models."""
    if config.num_ranks > 1:
        return f"trainer.n_gpus_per_node={config.trainer.n_gpus_per_node}, nnodes={config.trainer.nnodes}"
    roles = ", ".join(role for role, is_offloaded in config.offloaded.items() if is_offloaded)
    return f"fsdp_config.offload_policy=True ({roles})"


def check_gpu_ids(config: Config) -> None:
    """Refuse a numbered GPU that nvidia-smi does not list: CUDA would leave it out, and the run be on the CPU.

    Where nothing is listed the CPU is meant; other names of GPUs (GPU-..., MIG-...) are CUDA's to judge.
    """
    asked = [gpu.strip() for gpu in config.system.CUDA_VISIBLE_DEVICES.split(",")]
    if VARIABLE in os.environ or not any(asked):
        return
    listed = [row[0] for row in query_gpus("index")]
    missing = [gpu for gpu in asked if gpu.isdecimal() and gpu not in listed]
    if listed and missing:
        raise ConfigError(
            f"system.{VARIABLE}={config.system.CUDA_VISIBLE_DEVICES}: nvidia-smi lists no GPU {', '.join(missing)}. "
            f"Name some of {', '.join(listed)}; an empty text, \"system.{VARIABLE}=''\", is the CPU."
        )


def device_notes(config: Config) -> Iterator[str]:
    """Where a run gets other devices than its configuration names."""
    asked, found = config.system.CUDA_VISIBLE_DEVICES, os.environ.get(VARIABLE)
    if found is not None and found != asked:
        yield f"{VARIABLE}={found or repr('')} of the environment is used, not system.{VARIABLE}={asked or repr('')}."


def export_devices(config: Config) -> None:
    """Tell CUDA, before torch is loaded, which GPUs the run uses; what the environment says already, stays."""
    os.environ.setdefault(VARIABLE, config.system.CUDA_VISIBLE_DEVICES)
