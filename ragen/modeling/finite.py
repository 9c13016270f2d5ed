"""Weights that are numbers: NaN and infinity are found before they are trained on, saved or played with.

Tested in tests/trainer/test_damage.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ragen.errors import NotFinite


def non_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors with NaN or infinity in them; of sharded ones this rank's shard is looked at."""
    parts = {name: _local(tensor.detach()) for name, tensor in tensors.items() if tensor.is_floating_point()}
    names = [name for name, part in parts.items() if part.numel()]
    # The least and the largest number of each: NaN wins, no copy is made, and the device is waited for once. On a CPU
    # the norm of the largest size takes 16 times as long.
    bounds = [torch.stack(torch.aminmax(parts[name])).float() for name in names]
    if not bounds:
        return []
    flags = torch.stack([pair.to(bounds[0].device) for pair in bounds]).isfinite().all(-1).tolist()
    return [name for name, is_finite in zip(names, flags, strict=True) if not is_finite]


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def describe(names: list[str], count: int) -> str:
    """["a", "b"], 8 -> 2 of 8 tensors hold NaN or infinity, the first is a"""
    return f"{len(names)} of {count} tensors hold NaN or infinity, the first is {names[0]}"


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    if names := non_finite(tensors):
        raise NotFinite(f"{what}: {describe(names, len(tensors))}. It is not saved.")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A safetensors file of numbers only."""
    check_finite(tensors, f"{path.parent.name}/{path.name}")
    save_file(dict(tensors), path)
