"""Differences, their p, corrections and seeds against numbers worked by hand; coverage in simulations."""

import math

import numpy as np
import pytest

from ragen.algorithms.comparison import (
    area,
    holm,
    iqm,
    iqm_coverage,
    iqm_interval,
    paired_gap,
    seeds_needed,
    two_sided_p,
    unpaired_gap,
    wilson_coverage,
)
from ragen.algorithms.statistics import T_QUANTILES, student_interval

NUM_REPEATS = 4000
"""Coverage is then known to a third of a point (one standard error)."""


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (20, 2.086), (30, 2.0423)])
def test_the_tail_beyond_the_quantile_is_five_per_cent(degrees, quantile):
    assert two_sided_p(quantile, degrees) == pytest.approx(0.05, abs=5e-5)
    assert two_sided_p(-quantile, degrees) == two_sided_p(quantile, degrees)


def test_one_degree_of_freedom_is_the_arc_tangent():
    assert two_sided_p(2.5, 1) == pytest.approx(1 - 2 / math.pi * math.atan(2.5), abs=1e-10)
    assert two_sided_p(0, 7) == pytest.approx(1)


def test_a_paired_gap_by_hand():
    gap = paired_gap([0.1, 0.2, 0.3])
    assert (gap.estimate.mean, gap.std, gap.num_seeds) == pytest.approx((0.2, 0.1, 3))
    assert gap.estimate.high - gap.estimate.mean == pytest.approx(T_QUANTILES[1] * 0.1 / math.sqrt(3))
    assert gap.p == pytest.approx(0.0742, abs=1e-4)


def test_one_pair_and_pairs_that_agree_have_no_p():
    assert math.isnan(paired_gap([0.3]).p) and math.isnan(paired_gap([0.3]).estimate.low)
    for gap in (paired_gap([0.25, 0.25]), paired_gap([0.0, 0.0])):  # also pairs without a difference are no certainty
        assert math.isnan(gap.p) and math.isnan(gap.estimate.low)


def test_an_unpaired_gap_is_welchs():
    gap = unpaired_gap([0.4, 0.6], [0.1, 0.3])
    # Both means have the error 0.1, so the difference sqrt(0.02) with 2 degrees of freedom.
    assert gap.estimate.mean == pytest.approx(0.3)
    assert gap.estimate.high - 0.3 == pytest.approx(T_QUANTILES[1] * math.sqrt(0.02))
    assert not gap.is_paired and gap.p == pytest.approx(two_sided_p(0.3 / math.sqrt(0.02), 2))
    assert math.isnan(unpaired_gap([0.4], [0.1, 0.3]).p)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    corrected = holm([math.nan, 0.02])
    assert math.isnan(corrected[0]) and corrected[1] == 0.02, "what cannot be told is not counted"


def test_holm_keeps_the_chance_of_any_false_alarm_at_five_per_cent():
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(1000):
        alarms += min(holm([paired_gap(rng.normal(size=5).tolist()).p for _ in range(4)])) < 0.05
    assert 0.03 <= alarms / 1000 <= 0.07


@pytest.mark.parametrize("difference", [0.05, 0.1])
def test_so_many_seeds_find_the_difference_in_four_of_five_studies(difference):
    rng = np.random.default_rng(1)
    count = seeds_needed(0.1, difference)
    found = [paired_gap(rng.normal(difference, 0.1, count).tolist()).p < 0.05 for _ in range(1500)]
    assert 0.76 <= np.mean(found) <= 0.85
    assert seeds_needed(0.0, difference) == 2


def test_the_area_is_the_mean_height():
    assert area([0, 10, 20], [0.0, 1.0, 1.0]) == 0.75
    assert area([0, 10, 40], [0.0, 1.0, 1.0]) == pytest.approx(0.875)
    assert area([5], [0.5]) == 0.5


def test_the_interquartile_mean_drops_a_quarter_at_both_ends():
    assert iqm(np.array([9.0, 0, 2, 1])) == 1.5
    assert iqm(np.array([0.0, 1, 5])) == pytest.approx(1.5), "weights 1/6, 2/3 and 1/6"
    scores = np.array([[0.1, 0.2, 0.2, 0.4, 0.3], [0.5, 0.6, 0.5, 0.4, 0.5], [0.9, 0.8, 0.9, 1.0, 0.9]])
    found = iqm_interval(scores)
    assert found.low < found.mean < found.high and found.mean == pytest.approx(float(iqm(scores)))


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
def test_students_interval_of_differences_covers_ninety_five_per_cent(num_seeds):
    rng = np.random.default_rng(num_seeds)
    found = [student_interval(rng.normal(0.1, 0.05, num_seeds).tolist()) for _ in range(NUM_REPEATS)]
    assert np.mean([each.low <= 0.1 <= each.high for each in found]) == pytest.approx(0.95, abs=0.015)


def test_the_coverage_that_is_printed_beside_wilson_and_iqm():
    assert wilson_coverage(3) == pytest.approx(0.956, abs=1e-3)
    assert wilson_coverage(20) == pytest.approx(0.953, abs=1e-3)
    rng = np.random.default_rng(8)
    truth = [iqm_interval(rng.normal(size=(3, 5)), num_draws=300, seed=seed) for seed in range(400)]
    measured = np.mean([each.low <= 0 <= each.high for each in truth])
    assert iqm_coverage(3, 5) == pytest.approx(measured, abs=0.04), "two simulations of the same"
    assert iqm_coverage(3, 5) < 0.95, "a bootstrap of five seeds is too narrow, and that is what is printed"
