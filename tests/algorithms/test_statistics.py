"""Intervals against numbers worked by hand."""

import math

import pytest

from ragen.algorithms.statistics import mean_interval, proportion_interval, success_interval


def test_wilson_interval_of_eight_of_ten():
    interval = proportion_interval(8, 10)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)


def test_wilson_interval_stays_inside_zero_and_one():
    assert proportion_interval(0, 4).low == 0
    assert proportion_interval(4, 4).high == 1


def test_episodes_of_one_level_count_as_one_cluster():
    # Cluster means 0.5 and 1: standard deviation 0.35355, standard error 0.25.
    interval = mean_interval([0, 1, 1, 1], ["a", "a", "b", "b"])
    assert interval.mean == 0.75
    assert interval.high - interval.mean == pytest.approx(1.959964 * 0.25)


def test_one_cluster_has_no_interval():
    assert math.isnan(mean_interval([0, 1], ["a", "a"]).low)


def test_success_uses_wilson_for_single_episodes_and_clusters_otherwise():
    assert success_interval([True, False], [0, 1]) == proportion_interval(1, 2)
    assert success_interval([True, True, False, False], [0, 0, 1, 1]).high == 1


def test_levels_that_all_fail_or_all_succeed_count_as_one_trial_each():
    assert success_interval([False] * 4, [0, 0, 1, 1]) == proportion_interval(0, 2)
    assert success_interval([True] * 4, [0, 0, 1, 1]) == proportion_interval(2, 2)


def test_an_estimate_prints_its_interval():
    assert f"{proportion_interval(8, 10):.2f}" == "0.80 [0.49, 0.94]"
