"""Small batches for the tests of estimators that compare episodes."""

from __future__ import annotations

import torch


def one_token(*scores: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and mask of episodes with a single token."""
    return torch.tensor([[score] for score in scores]), torch.ones(len(scores), 1)


def numbers(count: int) -> torch.Tensor:
    return torch.arange(count)


def column(advantages: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
    return advantages[0][:, 0].tolist()
