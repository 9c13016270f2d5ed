"""Sharded models and optimizers (PyTorch FSDP2): each rank holds a part of every weight.

Parts of the weights of actor, critic and reference, and of the optimizers' moments, are in float32, on the rank's
device or in the memory of the CPU. A pass gathers one layer at a time, in bfloat16 on a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ragen.distributed.team import Rank, Root
from ragen.learners.learner import OPTIMIZER_FILE
from ragen.learners.optimizer import Optimizer
from ragen.modeling.team import gathered


def shard(model: Any, rank: Rank, *, is_offloaded: bool = False) -> Root:
    """Keep this rank's part of every weight, layer by layer; trained weights in float32.

    Gradients are summed over the ranks, not averaged: the weights in the loss belong to the whole mini batch.
    Offloaded parts are in the CPU's memory, as are their gradients and moments; AdamW steps there.
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
    return root


class Whole:
    """A model in one piece that follows the weights of the same model in parts."""

    def __init__(self, model: Any | None, sharded: Any, rank: Rank) -> None:
        """`model` is None on ranks that only help to gather. Call this before the first pass: see `weights`."""
        self.model, self.rank = model, rank
        self.weights: dict[str, Any] = dict(sharded.named_parameters())
        """The parts. A pass may leave gathered weights in their place in the module."""
        self.is_stale = False

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the trained weights; all ranks must call this."""
        if not self.is_stale:
            return
        copies = dict(self.model.named_parameters()) if self.model is not None else {}
        for name, weight in self.weights.items():
            if weight.requires_grad:
                full = gathered(weight.to(self.rank.dtype).to(self.rank.device))
                if name in copies:
                    copies[name].copy_(full)
        self.is_stale = False


def gathered_state(optimizer: Optimizer, rank: Rank) -> dict[str, Tensor]:
    """What one process would save of an optimizer. All ranks take part, and only the first keeps the result."""
    state = optimizer.state()
    if rank.dtype != torch.float32:  # saved weights are rounded
        state |= {f"{name}.master": weight.detach() for name, weight in optimizer.weights.items()}
    found = {}
    for key, tensor in state.items():
        full = gathered(tensor.to(rank.device))
        if rank.number == 0:
            found[key] = full.cpu()
        rank.on_progress()
    return found


def load_optimizer(optimizer: Optimizer, folder: Path) -> None:
    """This rank's parts of a file that `gathered_state`, or one process, made."""
    masters = optimizer.masters
    parts: dict[str, Tensor] = {}
    with safe_open(folder / OPTIMIZER_FILE, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - not a dictionary
            name, _, kind = key.rpartition(".")
            master = masters[name]
            if kind == "step" or not isinstance(master, DTensor):
                parts[key] = file.get_tensor(key)
            else:
                full = file.get_tensor(key)
                part = distribute_tensor(full, master.device_mesh, master.placements, src_data_rank=None)
                parts[key] = part.to(master.device)
    optimizer.load_state(parts)
