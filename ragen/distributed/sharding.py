"""Sharded models (PyTorch FSDP2): each rank holds a shard of every weight.

Shards of the weights of actor, critic and reference, and of the optimizers' moments, are in float32, on the rank's
device or in the memory of the CPU. A pass gathers one layer at a time, in bfloat16 on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from ragen.distributed.team import Rank, Root, ShardTeam


def shard(model: Any, rank: Rank, *, is_offloaded: bool = False, copy: Any = None) -> ShardTeam:
    """Keep this rank's shard of every weight, layer by layer; trained weights in float32. `copy` stays as it is.

    Gradients are summed over the ranks, not averaged: the weights in the loss belong to the whole mini batch.
    Offloaded shards are in the CPU's memory, as are their gradients and moments; AdamW steps there.
    """
    offload = CPUOffloadPolicy(pin_memory=rank.device == "cuda") if is_offloaded else OffloadPolicy()
    policy = MixedPrecisionPolicy(
        param_dtype=rank.dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    layers = max((m for m in model.modules() if isinstance(m, nn.ModuleList)), key=len)
    root = Root(model)
    for module in (*layers, root):
        for weight in module.parameters():
            if weight.requires_grad and not isinstance(weight, DTensor):
                weight.data = weight.data.float()
        part = fully_shard(module, mesh=rank.mesh, mp_policy=policy, offload_policy=offload)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        # Gathered weights learn here whether they are trained; later an adapter may be switched off just then.
        part.unshard()
        part.reshard()
    return ShardTeam(rank, root, copy)
