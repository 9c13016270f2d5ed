"""Signal and noise of a mean of gradients."""

import math

import pytest
import torch

from ragen.diagnostics.noise import cosine, measure_noise
from ragen.workers.gradients import SKETCH_SIZE, sketch_of


def folds_of(signal: torch.Tensor, noise: float, count: int) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Length, parts and masses of the mean of `count` draws of signal + noise."""
    draws = signal + noise * torch.randn(count, len(signal), generator=torch.Generator().manual_seed(3))
    return draws.mean(0).norm().item(), draws / count, torch.ones(count)


def test_equal_folds_have_no_noise():
    noise = measure_noise(5.0, torch.tensor([[1.5, 2.0], [1.5, 2.0]]), torch.tensor([10, 10]), seed=0)
    assert noise is not None
    for value in (noise.low, noise.high, noise.debiased):
        assert value == pytest.approx(5.0)
    assert noise.split_half_cosine == pytest.approx(1.0)


def test_opposite_folds_are_all_noise():
    # The mean of (2, 1) and (2, -1) is (2, 0): squared length 4. Halves: cosine 3/5. Scatter: 2 * (0.5^2 + 0.5^2) = 1.
    noise = measure_noise(2.0, torch.tensor([[1.0, 0.5], [1.0, -0.5]]), torch.tensor([1, 1]), seed=0)
    assert noise is not None
    assert noise.split_half_cosine == pytest.approx(0.6)
    assert noise.debiased == pytest.approx(math.sqrt(3))


def test_folds_of_different_size_with_the_same_mean_agree():
    """A fold of 30 tokens adds three times what one of 10 adds."""
    noise = measure_noise(4.0, torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([10, 30]), seed=0)
    assert noise is not None
    assert (noise.low, noise.high, noise.debiased) == pytest.approx((4.0, 4.0, 4.0))


def test_pure_noise_is_seen_as_such():
    length, parts, masses = folds_of(torch.zeros(400), 1.0, 24)
    noise = measure_noise(length, parts, masses, seed=0)
    assert noise is not None
    assert abs(noise.split_half_cosine) < 0.1
    assert noise.debiased < 0.5 * length
    assert noise.low < length < noise.high


def test_signal_is_found_under_noise():
    """400 dimensions of noise 1 over 64 draws add sqrt(400 / 64) = 2.5 to a signal of length 5."""
    signal = torch.zeros(400)
    signal[0] = 5.0
    length, parts, masses = folds_of(signal, 1.0, 64)
    noise = measure_noise(length, parts, masses, seed=0)
    assert noise is not None
    assert length == pytest.approx(math.hypot(5.0, 2.5), rel=0.05)
    assert noise.debiased == pytest.approx(5.0, rel=0.05)
    assert 0.5 < noise.split_half_cosine < 0.8  # 25 / (25 + 2 * 6.25) = 0.67
    assert noise.low < length < noise.high


def test_what_rounding_left_of_a_fold_has_no_direction():
    """Replies that are alike with opposite advantages cancel; 1e-8 of them may stay, in whatever direction."""
    found = [
        measure_noise(1.0, torch.tensor([[1.0, 0.0], [rest, rest]]), torch.ones(2), seed=0)
        for rest in (0.0, 1e-8, -1e-8)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] is not None and found[0].split_half_cosine == 0.0


def test_a_single_fold_says_nothing_about_noise():
    assert measure_noise(1.0, torch.ones(1, 2), torch.ones(1), seed=0) is None


def test_sketches_keep_lengths_and_angles_and_add_up():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 300_000, generator=generator)
    second = 0.6 * first + 0.8 * second
    a, b = sketch_of(first, 7), sketch_of(second, 7)
    assert a.shape == (SKETCH_SIZE,)
    assert a.norm().item() == pytest.approx(first.norm().item(), rel=0.05)
    assert cosine(a[None], b[None]) == pytest.approx(0.6, abs=0.06)
    assert torch.allclose(sketch_of(first + second, 7), a + b, atol=1e-3)
    assert torch.equal(sketch_of(first, 7), a) and not torch.equal(sketch_of(first, 8), a)
