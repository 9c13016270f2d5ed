"""How much of a gradient is signal: what its folds say about another batch of the same size.

The gradient of a bucket is a mean over groups that were drawn at random. Its length therefore has a part that only
sampling put there, and never is zero. Four numbers tell signal from noise: the length without that part, where the
length of another draw would fall, how long the gradient of a single group is, and how well two halves of the bucket
agree in direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.statistics import Z, t_quantile

NUM_SPLITS = 64
MIN_FOLDS = 4
"""With fewer folds the spread of the length is not known well enough for an interval."""
ROUNDING = 1e-6
"""A gradient this much shorter than the longest one is what float32 left of a sum that is zero; its direction is
chance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """What the folds of a bucket say about its gradient, by the names of metrics; needs two folds."""

    norm_debiased: float
    """The length that is left when the part that sampling adds is taken away."""
    norm_one_group: float
    """The length that the gradient of one group has (root mean square), whatever the size of the bucket."""
    norm_low: float | None
    norm_high: float | None
    """Where the length that another batch of the same size shows falls in 95 % of the cases; needs MIN_FOLDS."""
    split_half_cosine: float
    """Mean cosine between the gradients of two halves: 0 is noise, 1 is signal."""


def measure_noise(norm: float, sketches: Tensor, masses: Tensor, *, num_groups: int, seed: int) -> Noise | None:
    """The noise of a gradient of length `norm` that is the mean of folds; None for a single fold.

    `sketches` [folds, dim] add up to the gradient, and fold f counts masses[f] of the mean.
    """
    num_folds = len(sketches)
    if num_folds < 2 or norm == 0:
        return None
    sketches, shares = sketches.double(), (masses / masses.sum()).double()
    lengths = sketches.norm(dim=1, keepdim=True)
    sketches = torch.where(lengths > ROUNDING * lengths.max(), sketches, 0.0)
    mean = sketches.sum(0)
    square = mean.square().sum().item()
    # The scatter of a mean, from the deviations of its folds.
    deviations = sketches - shares[:, None] * mean
    scatter = deviations.square().sum().item() * num_folds / (num_folds - 1)
    # Sketches know lengths to 1 %, the length itself is exact: everything is put in its units.
    unit = norm / math.sqrt(square)
    factor = length_factor(sketches, shares) if num_folds >= MIN_FOLDS else None
    return Noise(
        norm_low=norm / factor if factor else None,
        norm_high=norm * factor if factor else None,
        norm_debiased=math.sqrt(max(0.0, square - scatter)) * unit,
        norm_one_group=math.sqrt(square + (num_groups - 1) * scatter) * unit,
        split_half_cosine=_split_half_cosine(sketches, seed),
    )


def length_factor(sketches: Tensor, shares: Tensor) -> float:
    """By what factor the length of another batch of the same size may differ from this one, in 95 % of the cases.

    A squared length is close to a multiple of a chi-square variable, with as many degrees of freedom as its mean and
    variance say (Satterthwaite 1946). The ratio of two such is F, and with equal degrees f the logarithm of its root
    has the quantile asinh(t_f / sqrt(f)) (Cacoullos 1965). The variance is known from few folds: its own uncertainty
    widens the interval like Student's t.
    """
    num_folds = len(sketches)
    square = sketches.sum(0).square().sum().item()
    variance = square_length_variance(sketches, shares)
    if variance <= 0:
        return 1.0
    degrees = max(1.0, 2 * square**2 / variance)
    half = math.asinh(t_quantile(int(degrees)) / math.sqrt(degrees))
    return math.exp(half * t_quantile(num_folds - 1) / Z)


def square_length_variance(sketches: Tensor, shares: Tensor) -> float:
    """Variance of the squared length of the mean, over batches of this size.

    The jackknife counts the part where the noise of one fold meets that of another twice (Efron and Stein 1981). That
    part is tr(covariance^2), known without bias from products of distinct folds; in many dimensions it is nearly all
    there is, and what a bootstrap gets wrong by far: its draws lie in the few dimensions that the folds span.
    """
    count = len(sketches)
    products = sketches @ sketches.T  # [folds, folds]
    # [folds] Squared lengths of the means without one fold.
    rest = (products.sum() - 2 * products.sum(1) + products.diag()) / (1 - shares) ** 2
    jackknife = (count - 1) / count * (rest - rest.mean()).square().sum().item()
    pairs = products * count**2 * (1 - torch.eye(count, dtype=products.dtype))
    total, rows, squares = pairs.sum() ** 2, pairs.sum(1).square().sum(), pairs.square().sum()
    # Means over two equal, one equal and no equal pair of distinct folds.
    both = squares / (count * (count - 1))
    one = (rows - squares) / (count * (count - 1) * (count - 2))
    none = (total - 4 * rows + 2 * squares) / (count * (count - 1) * (count - 2) * (count - 3))
    twice = 2 * max(0.0, (both - 2 * one + none).item()) / count**2
    return max(jackknife - twice, jackknife / 2)


def _split_half_cosine(sketches: Tensor, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    num_folds = len(sketches)
    is_first = torch.rand(NUM_SPLITS, num_folds, generator=generator).argsort(1) < num_folds // 2
    halves = is_first.double() @ sketches, (~is_first).double() @ sketches
    return torch.nn.functional.cosine_similarity(*halves, dim=1).mean().item()


def cosine(first: Tensor, second: Tensor) -> float:
    """Cosine of the angle between two gradients, from the sketches of their folds."""
    return torch.nn.functional.cosine_similarity(first.sum(0), second.sum(0), dim=0).item()
