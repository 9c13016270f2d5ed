"""Metrics over steps."""

import math

import pytest

from ragen.reproduce.series import change, halving, rank_correlation, series, slope, smooth, training_success
from tests.reproduce.evidence import write_run


def test_a_series_has_the_steps_that_logged_it(tmp_path):
    rows = [{"step": 1, "a": 2.0}, {"step": 2}, {"step": 3, "a": 4.0, "train/X/success": 0.5, "train/Y/success": 1.0}]
    folder = write_run(tmp_path / "run", rows)
    assert series(folder, "a") == {1: 2.0, 3: 4.0}
    assert training_success(folder) == {3: 0.75}


def test_a_moving_mean_looks_back():
    assert smooth({1: 0.0, 2: 1.0, 3: 2.0}) == {1: 0.0, 2: 0.5, 3: 1.0}
    assert smooth(dict.fromkeys(range(9), 1.0))[8] == 1.0


def test_the_step_at_which_half_is_lost_for_good():
    assert halving(dict.fromkeys(range(1, 10), 1.0) | dict.fromkeys(range(10, 15), 0.0)) == 12
    assert halving(dict.fromkeys(range(1, 10), 1.0)) == math.inf
    back = dict.fromkeys(range(1, 6), 1.0) | dict.fromkeys(range(6, 12), 0.0) | dict.fromkeys(range(12, 20), 1.0)
    assert halving(back) == math.inf, "it recovered"
    assert halving({}) == math.inf


def test_change_compares_the_end_with_the_start():
    values = {step: float(step >= 10) for step in range(20)} | dict.fromkeys(range(20, 30), 9.0)
    assert change(values, before=20) == 1.0
    assert math.isnan(change(values, before=15)), "too few steps"


def test_slope_and_rank_correlation():
    assert slope({0: 1.0, 10: 6.0}) == pytest.approx(0.5)
    assert math.isnan(slope({0: 1.0}))
    assert rank_correlation({1: 1.0, 2: 5.0, 3: 6.0}, {1: 0.1, 2: 0.2, 3: 9.0, 4: 0.0}) == pytest.approx(1.0)
    assert math.isnan(rank_correlation({1: 1.0, 2: 1.0, 3: 1.0}, {1: 0.1, 2: 0.2, 3: 9.0}))
