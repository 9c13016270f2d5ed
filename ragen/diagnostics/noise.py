"""How much of a gradient is signal: what its folds say about another batch of the same size.

The gradient of a bucket is a mean over groups that were drawn at random. Its length therefore has a part that only
sampling put there, and never is zero. Three numbers tell signal from noise: the length without that part, where the
length of another draw would fall, and how well two halves of the bucket agree in direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NUM_DRAWS = 1000
NUM_SPLITS = 64
ROUNDING = 1e-6
"""A fold this much shorter than the longest one is what float32 left of a sum that is zero; its direction is chance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """What the folds of a bucket say about its gradient; needs two folds."""

    low: float
    high: float
    """95 % of the lengths that other batches of the same size would show."""
    debiased: float
    """The length that is left when the part that sampling adds is taken away."""
    split_half_cosine: float
    """Mean cosine between the gradients of two halves: 0 is noise, 1 is signal."""


def measure_noise(norm: float, sketches: Tensor, masses: Tensor, *, seed: int) -> Noise | None:
    """The noise of a gradient of length `norm` that is the mean of folds; None for a single fold.

    `sketches` [folds, dim] add up to the gradient, and fold f counts masses[f] of the mean. Draws of folds with
    replacement (bootstrap) are means again: sum of the sketches over sum of the masses. They scatter around the
    gradient, so their squared lengths are too large by the scatter, which is taken away again.
    """
    num_folds = len(sketches)
    if num_folds < 2 or norm == 0:
        return None
    generator = torch.Generator().manual_seed(seed)
    sketches, shares = sketches.double(), (masses / masses.sum()).double()
    lengths = sketches.norm(dim=1, keepdim=True)
    sketches = torch.where(lengths > ROUNDING * lengths.max(), sketches, 0.0)
    picks = torch.randint(num_folds, (NUM_DRAWS, num_folds), generator=generator)
    counts = torch.zeros(NUM_DRAWS, num_folds, dtype=torch.float64).scatter_add_(
        1, picks, torch.ones_like(picks, dtype=torch.float64)
    )
    draws = (counts @ sketches) / (counts @ shares)[:, None]
    squares = draws.square().sum(1)
    mean = sketches.sum(0)
    # The scatter of a mean, from the deviations of its folds; the bootstrap shrinks it by (folds - 1) / folds.
    deviations = sketches - shares[:, None] * mean
    scatter = deviations.square().sum() * num_folds / (num_folds - 1)
    is_first = torch.rand(NUM_SPLITS, num_folds, generator=generator).argsort(1) < num_folds // 2
    halves = is_first.double() @ sketches, (~is_first).double() @ sketches
    cosine = torch.nn.functional.cosine_similarity(*halves, dim=1).mean().item()
    # Sketches know lengths to 1 %, the length itself is exact: everything is put in its units.
    unit = norm / mean.norm().item()
    drawn = (squares - (squares.mean() - mean.square().sum())).clamp(min=0).sqrt() * unit
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    debiased = (mean.square().sum() - scatter).clamp(min=0).sqrt().item() * unit
    return Noise(low=low, high=high, debiased=debiased, split_half_cosine=cosine)


def cosine(first: Tensor, second: Tensor) -> float:
    """Cosine of the angle between two gradients, from the sketches of their folds."""
    return torch.nn.functional.cosine_similarity(first.sum(0), second.sum(0), dim=0).item()
