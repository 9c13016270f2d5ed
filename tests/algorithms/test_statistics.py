"""Intervals against numbers worked by hand, and their coverage in simulations."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from ragen.algorithms.statistics import (
    Estimate,
    best_of,
    mean_interval,
    mean_of,
    over_seeds,
    proportion_interval,
    student_interval,
    success_interval,
    t_quantile,
    unknown_interval,
    worst_of,
)

NUM_REPEATS = 2000
"""Coverage is then known to half a point (one standard error)."""


def coverage(estimate: Callable[[], Estimate], truth: float) -> float:
    """Share of the repetitions whose interval holds the truth."""
    found = [estimate() for _ in range(NUM_REPEATS)]
    return sum(e.low <= truth <= e.high for e in found) / NUM_REPEATS


# --- numbers worked by hand


def test_wilson_interval_of_eight_of_ten():
    interval = proportion_interval(8, 10)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)


def test_wilson_interval_stays_inside_zero_and_one():
    assert proportion_interval(0, 4).low == 0
    assert proportion_interval(4, 4).high == 1


def test_a_share_is_cut_to_what_it_can_be_and_unknown_ends_stay_unknown():
    assert Estimate(0.9, 0.7, 1.1).as_share() == Estimate(0.9, 0.7, 1.0)
    assert f"{unknown_interval(0.5).as_share():.1f}" == "0.5"


def test_quantiles_go_on_beyond_the_table():
    assert t_quantile(4) == 2.776
    assert [t_quantile(degrees) for degrees in (30, 100)] == pytest.approx([2.0423, 1.9840], abs=2e-4)


def test_episodes_of_one_level_count_as_one_cluster():
    # Cluster means 0.5 and 1: standard deviation 0.35355, standard error 0.25, and one degree of freedom.
    interval = mean_interval([0, 1, 1, 1], ["a", "a", "b", "b"])
    assert interval.mean == 0.75
    assert interval.high - interval.mean == pytest.approx(12.706 * 0.25)


def test_one_cluster_has_no_interval():
    assert math.isnan(mean_interval([0, 1], ["a", "a"]).low)


def test_success_uses_wilson_for_single_episodes():
    assert success_interval([True, False], [0, 1]) == proportion_interval(1, 2)


def test_copies_of_an_episode_add_no_knowledge():
    once = [True] * 20 + [False] * 12
    levels = [level for level in range(32) for _ in range(2)]
    twice = success_interval([flag for flag in once for _ in range(2)], levels)
    single = proportion_interval(20, 32)
    assert single.high - single.low <= twice.high - twice.low < 1.1 * (single.high - single.low)


def test_levels_that_all_fail_or_all_succeed_count_as_one_trial_each():
    assert success_interval([False] * 4, [0, 0, 1, 1]) == proportion_interval(0, 2)
    assert success_interval([True] * 4, [0, 0, 1, 1]) == proportion_interval(2, 2)


def test_no_episode_has_no_success():
    assert math.isnan(success_interval([], []).mean)


def test_an_estimate_prints_its_interval():
    assert f"{proportion_interval(8, 10):.2f}" == "0.80 [0.49, 0.94]"


def test_independent_errors_add_up_as_squares():
    one, other = Estimate(0.4, 0.1, 0.7), Estimate(0.6, 0.2, 1.0)
    mean = mean_of([one, other])
    assert (mean.mean, mean.low, mean.high) == pytest.approx((0.5, 0.25, 0.75))


def test_equal_runs_keep_the_error_of_their_validation():
    run = proportion_interval(109, 128)
    assert student_interval([run.mean] * 3).low == pytest.approx(run.mean)
    shared = over_seeds([run] * 3, share_levels=True)
    assert (shared.mean, shared.low, shared.high) == pytest.approx((run.mean, run.low, run.high))
    own = over_seeds([run] * 3, share_levels=False)
    assert (run.mean - own.low) * math.sqrt(3) == pytest.approx(run.mean - run.low)


def test_runs_without_intervals_have_students():
    three = over_seeds([unknown_interval(rate) for rate in (0.5, 0.5, 0.6)], share_levels=True)
    assert (three.mean, three.low, three.high) == pytest.approx((0.53333, 0.38991, 0.67676), abs=1e-4)
    assert math.isnan(over_seeds([unknown_interval(0.5)], share_levels=True).low)


def test_best_and_worst_of_k_are_those_of_endless_draws():
    assert best_of([0, 1], 2) == pytest.approx((0.75, math.sqrt(0.75 * 0.25)))
    assert worst_of([0, 1], 2) == pytest.approx((0.25, math.sqrt(0.75 * 0.25)))
    scores, rng = [0.3, -1.0, 2.0, 2.0, 0.1], np.random.default_rng(0)
    draws = rng.choice(scores, (200_000, 3)).max(axis=1)
    assert best_of(scores, 3) == pytest.approx((draws.mean(), draws.std()), abs=0.01)
    assert best_of([4.0], 8) == (4.0, 0.0)


# --- coverage of nominal 95 %


@pytest.mark.parametrize("success", [0.1, 0.5, 0.85])
@pytest.mark.parametrize("correlation", [0.05, 0.3, 0.8])
@pytest.mark.parametrize(("num_levels", "group_size"), [(32, 4), (128, 2)])
def test_coverage_with_several_episodes_per_level(num_levels, group_size, correlation, success):
    rng = np.random.default_rng(7)
    mass = 1 / correlation - 1  # of the beta distribution of the levels' own success rates
    clusters = np.repeat(np.arange(num_levels), group_size).tolist()

    def estimate() -> Estimate:
        rates = rng.beta(success * mass, (1 - success) * mass, num_levels)
        played = rng.random((num_levels, group_size)) < rates[:, None]
        return success_interval(played.ravel().tolist(), clusters)

    assert 0.93 <= coverage(estimate, success) <= 0.98


@pytest.mark.parametrize(("num_levels", "group_size"), [(5, 1), (5, 4), (40, 4)])
def test_coverage_of_means_with_few_levels(num_levels, group_size):
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(num_levels), group_size).tolist()

    def estimate() -> Estimate:
        values = rng.normal(size=(num_levels, 1)) + rng.normal(size=(num_levels, group_size))
        return mean_interval(values.ravel().tolist(), clusters)

    assert 0.935 <= coverage(estimate, 0.0) <= 0.965


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
@pytest.mark.parametrize(("num_seeds", "num_levels"), [(3, 128), (5, 256)])
def test_coverage_over_seeds_that_share_their_levels(num_seeds, num_levels, spread):
    """Levels decide alone: a better policy solves the same levels and some more."""
    rng = np.random.default_rng(11)

    def estimate() -> Estimate:
        hardness = rng.random(num_levels)
        rates = 0.6 + spread * rng.normal(size=num_seeds)
        runs = [proportion_interval(int((hardness < rate).sum()), num_levels) for rate in rates]
        return over_seeds(runs, share_levels=True)

    assert 0.935 <= coverage(estimate, 0.6) <= 0.98


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
def test_coverage_over_seeds_with_levels_of_their_own(spread):
    """The floor, which only runs that agree by chance need, makes it a little too wide where seeds do not differ."""
    rng = np.random.default_rng(13)

    def estimate() -> Estimate:
        rates = np.clip(0.6 + spread * rng.normal(size=3), 0, 1)
        runs = [proportion_interval(int(rng.binomial(256, rate)), 256) for rate in rates]
        return over_seeds(runs, share_levels=False)

    assert 0.935 <= coverage(estimate, 0.6) <= 0.995


def test_an_interval_that_is_not_known_is_left_out():
    assert f"{Estimate(0.5, 0.375, 0.625)}" == "0.500 [0.375, 0.625]"
    assert f"{unknown_interval(0.5):+.2f}" == "+0.50"
