"""Signal and noise of a mean of gradients."""

import math
from statistics import fmean, median, quantiles

import pytest
import torch

from ragen.diagnostics.noise import Noise, cosine, length_factor, measure_noise
from ragen.learners.sketches import SKETCH_SIZE, signs_of, sketch_of


def folds_of(signal: torch.Tensor, noise: float, count: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Length, parts and masses of the mean of `count` draws of signal + noise."""
    draws = signal + noise * torch.randn(count, len(signal), generator=torch.Generator().manual_seed(3))
    return draws.mean(0).norm().item(), draws / count, torch.ones(count)


def measured(norm: float, parts: torch.Tensor, masses: torch.Tensor, num_groups: int | None = None) -> Noise:
    noise = measure_noise(norm, parts, masses, num_groups=num_groups or len(parts), seed=0)
    assert noise is not None
    return noise


def test_equal_folds_have_no_noise():
    noise = measured(5.0, torch.tensor([[0.75, 1.0]] * 4), torch.tensor([10] * 4))
    assert (noise.norm_low, noise.norm_high, noise.norm_debiased, noise.norm_one_group) == pytest.approx((5.0,) * 4)
    assert noise.split_half_cosine == pytest.approx(1.0)


def test_opposite_folds_are_all_noise():
    # The mean of (2, 1) and (2, -1) is (2, 0): squared length 4. Halves: cosine 3/5. Scatter: 2 * (0.5^2 + 0.5^2) = 1.
    noise = measured(2.0, torch.tensor([[1.0, 0.5], [1.0, -0.5]]), torch.tensor([1, 1]))
    assert noise.split_half_cosine == pytest.approx(0.6)
    assert noise.norm_debiased == pytest.approx(math.sqrt(3))
    assert noise.norm_one_group == pytest.approx(math.sqrt(5))  # 3 of signal and twice the scatter
    assert noise.norm_low is None and noise.norm_high is None  # two folds say too little about the spread


def test_folds_of_different_size_with_the_same_mean_agree():
    """A fold of 30 tokens adds three times what one of 10 adds."""
    parts = torch.tensor([[1.0, 0.0], [3.0, 0.0]] * 2) / 2
    noise = measured(4.0, parts, torch.tensor([10, 30] * 2))
    assert (noise.norm_low, noise.norm_high, noise.norm_debiased) == pytest.approx((4.0, 4.0, 4.0))


def test_pure_noise_is_seen_as_such():
    length, parts, masses = folds_of(torch.zeros(400), 1.0, 24)
    noise = measured(length, parts, masses)
    assert noise.norm_low is not None and noise.norm_high is not None
    assert abs(noise.split_half_cosine) < 0.1
    assert noise.norm_debiased < 0.5 * length
    assert noise.norm_low < length < noise.norm_high


def test_signal_is_found_under_noise():
    """400 dimensions of noise 1 over 64 draws add sqrt(400 / 64) = 2.5 to a signal of length 5."""
    signal = torch.zeros(400)
    signal[0] = 5.0
    length, parts, masses = folds_of(signal, 1.0, 64)
    noise = measured(length, parts, masses)
    assert noise.norm_low is not None and noise.norm_high is not None
    assert length == pytest.approx(math.hypot(5.0, 2.5), rel=0.05)
    assert noise.norm_debiased == pytest.approx(5.0, rel=0.05)
    assert 0.5 < noise.split_half_cosine < 0.8  # 25 / (25 + 2 * 6.25) = 0.67
    assert noise.norm_low < length < noise.norm_high


def test_what_rounding_left_of_a_fold_has_no_direction():
    """Replies that are alike with opposite advantages cancel; 1e-8 of them may stay, in whatever direction."""
    found = [
        measure_noise(1.0, torch.tensor([[1.0, 0.0], [rest, rest]]), torch.ones(2), num_groups=2, seed=0)
        for rest in (0.0, 1e-8, -1e-8)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] is not None and found[0].split_half_cosine == 0.0


SIZES = [(2, 8, 400), (10, 6, 400), (10, 32, 400), (10_000, 8, 60)]
"""Dimensions, folds and repetitions."""


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("signal", [0.0, 1.0, 5.0])
@pytest.mark.parametrize(("dim", "num_folds", "num_repeats"), SIZES)
def test_the_interval_holds_the_length_of_another_batch(dim, num_folds, num_repeats, signal, is_uneven):
    """`signal` is in units of the noise of the mean; `is_uneven` draws groups of very different lengths."""
    generator = torch.Generator().manual_seed(11)
    mean = torch.zeros(dim)
    mean[0] = signal * math.sqrt(dim / num_folds)

    def draw() -> torch.Tensor:
        noise = torch.randn(num_folds, dim, generator=generator)
        if is_uneven:
            noise *= torch.empty(num_folds, 1).exponential_(generator=generator).sqrt()
        return (mean + noise) / num_folds

    shares = torch.full((num_folds,), 1 / num_folds)
    num_inside, factors, others = 0, [], []
    for _ in range(num_repeats):
        parts = draw()
        ratio = draw().sum(0).norm().item() / parts.sum(0).norm().item()
        factors.append(length_factor(parts.double(), shares.double()))
        num_inside += 1 / factors[-1] <= ratio <= factors[-1]
        others.append(abs(math.log(ratio)))
    assert num_inside / num_repeats >= 0.88
    needed = quantiles(others, n=20)[-1]  # what 95 % of the pairs of batches differ by
    assert math.log(median(factors)) < 2 * needed


def test_the_norm_of_one_group_does_not_depend_on_the_size_of_the_bucket():
    generator = torch.Generator().manual_seed(5)
    found = {}
    for count in (4, 64):
        draws = [torch.randn(count, 300, generator=generator) / count for _ in range(50)]
        norms = [parts.sum(0).norm().item() for parts in draws]
        ones = [measured(n, parts, torch.ones(count)).norm_one_group for n, parts in zip(norms, draws, strict=True)]
        found[count] = fmean(norms), fmean(ones)
    assert found[4][0] / found[64][0] == pytest.approx(4, rel=0.05)  # a mean over 16 times as many groups
    assert found[4][1] == pytest.approx(found[64][1], rel=0.03)
    assert found[64][1] == pytest.approx(math.sqrt(300), rel=0.03)


def test_a_single_fold_says_nothing_about_noise():
    assert measure_noise(1.0, torch.ones(1, 2), torch.ones(1), num_groups=1, seed=0) is None


def test_sketches_keep_lengths_and_angles_and_add_up():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 300_000, generator=generator)
    second = 0.6 * first + 0.8 * second
    signs = signs_of(first, 7)
    a, b = sketch_of(first, signs), sketch_of(second, signs)
    assert a.shape == (SKETCH_SIZE,)
    assert a.norm().item() == pytest.approx(first.norm().item(), rel=0.05)
    assert cosine(a[None], b[None]) == pytest.approx(0.6, abs=0.06)
    assert torch.allclose(sketch_of(first + second, signs), a + b, atol=1e-3)
    assert torch.equal(signs_of(first, 7), signs) and not torch.equal(signs_of(first, 8), signs)
