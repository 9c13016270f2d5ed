"""Ranks that share the samples of each mini batch, and the weights of the models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from ragen.modeling.packing import by_beginning, shared_with_previous
from ragen.modeling.team import Share, Split, Team, gathered

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """This process among those that train together."""

    number: int
    world_size: int
    mesh: DeviceMesh
    dtype: torch.dtype
    """Of gathered and of saved weights: bfloat16 on a GPU, float32 on a CPU, as in one process."""
    is_balanced: bool
    """Ranks get similar numbers of tokens, not only of samples."""
    on_progress: Callable[[], None]
    """Called after each piece of work, for whoever watches."""

    @property
    def device(self) -> str:
        return self.mesh.device_type


def assign_to_ranks(sequences: Sequence[Sequence[int]], num_ranks: int, *, is_balanced: bool) -> list[list[int]]:
    """Indices of the samples of each rank; every sample goes to one of them, some ranks may get none.

    All samples stand in a row, common beginnings together, which is split into stretches of equal work; a sample goes
    where its middle is. A beginning that it shares with the one before it costs nothing, so work is what is left.

    [5, 6], [1], [5, 7, 8], two ranks -> [[1, 0], [2]]: 3 and 3 tokens
    """
    order = by_beginning(sequences)
    sizes = [1] * len(order)
    if is_balanced:
        shared = shared_with_previous(sequences, order)
        sizes = [max(1, len(sequences[i]) - count) for i, count in zip(order, shared, strict=True)]
    parts: list[list[int]] = [[] for _ in range(num_ranks)]
    for index, size, end in zip(order, sizes, accumulate(sizes), strict=True):
        parts[int(num_ranks * (end - size / 2) / sum(sizes))].append(index)
    return parts


class Root(nn.Module):
    """The outermost module of a sharded model. What is computed in its forward pass may use every layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], T]) -> T:
        return compute()


class ShardTeam(Team):
    """Ranks share the samples of each mini batch and, where there is a `root`, the weights of the model in it.

    `copy` is the same model with all its weights, which follow the sharded ones; ranks that only help to gather have
    none.
    """

    is_alone = False

    def __init__(self, rank: Rank, root: Root | None = None, copy: Any = None) -> None:
        self.rank, self.root, self.copy = rank, root, copy
        self.is_writer, self.is_rounded = rank.number == 0, rank.dtype != torch.float32
        # Taken before the first pass, which may leave gathered weights in the module instead.
        self.weights: dict[str, Any] = dict(root.model.named_parameters()) if root else {}
        self.is_stale = False

    def weights_changed(self) -> None:
        self.is_stale = True

    @torch.no_grad()
    def full_model(self, model: Any) -> Any:
        if self.root is None:
            return model
        copies = dict(self.copy.named_parameters()) if self.copy is not None else {}
        for name, weight in self.weights.items() if self.is_stale else ():
            if weight.requires_grad:
                full = gathered(weight.to(self.rank.dtype).to(self.rank.device))
                if name in copies:
                    copies[name].copy_(full)
        self.is_stale = False
        return self.copy

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for key, tensor in tensors.items():
            full = gathered(tensor.to(self.rank.device))
            if self.is_writer:
                found[key] = full.cpu()
            self.rank.on_progress()
        return found

    def own_part(self, tensor: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return tensor
        return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None).to(like.device)

    def for_copies(self) -> ShardTeam:
        return ShardTeam(self.rank)

    def device_of(self, model: Any) -> torch.device:
        return torch.device(self.rank.device)

    def shares(self, sequences: Sequence[Sequence[int]], split: Split) -> Iterator[Share]:
        rank = self.rank
        parts = assign_to_ranks(sequences, rank.world_size, is_balanced=rank.is_balanced)
        splits = [split([sequences[i] for i in part]) if part else [] for part in parts]
        own = [Share(indices=[parts[rank.number][i] for i in chosen]) for chosen in splits[rank.number]]
        shortest = min(range(len(sequences)), key=lambda i: len(sequences[i]))
        spare = Share(indices=[shortest], is_spare=True)
        for share in own + [spare] * (max(map(len, splits)) - len(own)):
            yield share
            rank.on_progress()

    def run(self, compute: Callable[[], T]) -> T:
        return compute() if self.root is None else self.root(compute)

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        totals = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(totals)
        return dict(zip(numbers, totals.tolist(), strict=True))

    def sum_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        for tensor in tensors:
            dist.all_reduce(tensor)
        return list(tensors)
