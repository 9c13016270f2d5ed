"""Who works on a batch: this process alone, or ranks that each take a part of every mini batch.

What is trained on is the same on every rank: whole batches arrive everywhere, and so do the weights that each token
has in the loss of its mini batch. A team says which samples are this rank's, and adds up what the ranks found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from ragen.learners.batch import Batch

Cut = Callable[[Sequence[Sequence[int]]], list[list[int]]]
"""Token ids of samples -> indices of each forward pass."""
T = TypeVar("T")


class Team(Protocol):
    """How the work on one model is shared."""

    def device_of(self, model: Any) -> torch.device:
        """Where the model computes. Its weights may be elsewhere between the passes."""
        ...

    def passes(self, batch: Batch, cut: Cut) -> Iterator[tuple[list[int], Batch]]:
        """Indices and samples of each of this process's forward passes.

        Models in parts need all ranks in every pass. A rank with nothing left to do gets no indices, and a sample to
        pass through that weighs nothing.
        """
        ...

    def run(self, compute: Callable[[], T]) -> T:
        """Compute something with the model; its weights are there meanwhile."""
        ...

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number's sum over the ranks."""
        ...

    def sum_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each tensor's sum over the ranks, on the CPU."""
        ...


class Solo:
    """One process does everything."""

    def device_of(self, model: Any) -> torch.device:
        return next(model.parameters()).device

    def passes(self, batch: Batch, cut: Cut) -> Iterator[tuple[list[int], Batch]]:
        for chosen in cut(batch.ids):
            yield chosen, batch.select(chosen)

    def run(self, compute: Callable[[], T]) -> T:
        return compute()

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return dict(numbers)

    def sum_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)


SOLO = Solo()


def gathered(tensor: Tensor) -> Tensor:
    """A tensor of which every rank holds a part, in one piece; all ranks must ask. Others are returned as they are."""
    # Not isinstance: the module of DTensor takes as long to import as half of torch.
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # type: ignore[attr-defined]
