"""Who works on the sequences of a model: this process alone, or ranks that each take a share of them.

All sequences, and what is computed from them, are the same on every rank. A team says which passes are this rank's,
and adds up what the ranks found.

Tested in tests/modeling/test_passes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

Split = Callable[[Sequence[Sequence[int]]], list[list[int]]]
"""Sequences -> indices of those that go through the model together."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Sequences of one pass of this process."""

    indices: list[int]
    is_spare: bool = False
    """This process has nothing left to do, others have: the pass counts for nothing."""


class Team:
    """One process that does all the work on a model. Ranks that share it override what is said here.

    All ranks must call each of the methods together.
    """

    is_writer = True
    """This process writes what all have."""
    is_alone = True
    """This process has all weights and does all passes."""
    is_rounded = False
    """The full weights are rounded, so those that are trained are saved beside them."""

    def device_of(self, model: Any) -> torch.device:
        """Where the model computes. Its weights may be elsewhere between the passes."""
        return next(model.parameters()).device

    def shares(self, sequences: Sequence[Sequence[int]], split: Split) -> Iterator[Share]:
        """The sequences of each of this process's passes. Sharded models need all ranks in every pass."""
        return (Share(indices=indices) for indices in split(sequences))

    def run(self, compute: Callable[[], T]) -> T:
        """Compute something with the model; its weights are there meanwhile."""
        return compute()

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number's sum over the ranks."""
        return dict(numbers)

    def sum_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor's sum over the ranks, on the CPU."""
        return list(tensors)

    def full_model(self, model: Any) -> Any:
        """The model with all its weights, the newest ones; None where only others need it."""
        return model

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors with all their numbers; where nothing is written, none."""
        return dict(tensors)

    def own_part(self, tensor: Tensor, like: Tensor) -> Tensor:
        """What this process holds of a full tensor, as it holds `like`."""
        return tensor

    def weights_changed(self) -> None:
        """Called after an update, for those who keep a copy."""

    def for_copies(self) -> Team:
        """The same processes at work on a model that each of them has a full copy of."""
        return self


SOLO = Team()


def gathered(tensor: Tensor) -> Tensor:
    """A tensor of which every rank holds a shard, with all its numbers; others as they are. All ranks call this."""
    # Not isinstance: the module of DTensor takes as long to import as half of torch.
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # type: ignore[attr-defined]
