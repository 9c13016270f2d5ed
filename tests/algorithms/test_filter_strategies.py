"""How groups are chosen by their scores: the vectors of the specification, and filters free of the reward scale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.algorithms.filter_strategies import STRATEGIES, TOP_P_MODES, select, z_scores
from ragen.algorithms.rollout_filter import FilterSettings

SCORES = [0, 0.5, 1, 2, 4.9, 0, 3, 0.1]


def keep(scores, strategy="top_p", value=1.0, **options) -> list[int]:
    return select(scores, FilterSettings(strategy=strategy, value=value, **options))


@pytest.mark.parametrize(
    ("value", "linear", "softmax_out", "softmax_in"),
    [
        (0.98, [4, 6, 3, 2, 1], [4, 6, 3, 2], [4, 6, 3, 2, 1]),
        (0.95, [4, 6, 3, 2, 1], [4, 6, 3], [4, 6, 3]),
        (0.9, [4, 6, 3, 2], [4, 6], [4, 6]),
        (0.8, [4, 6, 3], [4], [4, 6]),
        (0.6, [4, 6], [4], [4]),
        (0.4, [4], [4], [4]),
    ],
)
def test_top_p_keeps_the_groups_that_hold_the_mass(value, linear, softmax_out, softmax_in):
    assert keep(SCORES, value=value, include_zero=False) == linear
    assert keep(SCORES, value=value, include_zero=True) == linear
    assert keep(SCORES, value=value, include_zero=False, top_p_prob_mode="softmax") == softmax_out
    assert keep(SCORES, value=value, include_zero=True, top_p_prob_mode="softmax") == softmax_in


@pytest.mark.parametrize("mode", TOP_P_MODES)
@pytest.mark.parametrize("kind", ["largest", "smallest"])
def test_top_p_of_one_keeps_every_candidate(mode, kind):
    options = {"top_p_prob_mode": mode, "type": kind}
    assert keep(SCORES, include_zero=False, **options) == [1, 2, 3, 4, 6, 7]
    assert keep(SCORES, include_zero=True, **options) == list(range(8))


def test_smallest_walks_up():
    small = {"type": "smallest", "value": 0.9}
    assert keep(SCORES, include_zero=False, **small) == [7, 1, 2, 3, 6, 4]
    assert keep(SCORES, include_zero=True, **small) == []
    assert keep(SCORES, include_zero=False, top_p_prob_mode="softmax", **small) == [7, 1, 2]


def test_top_k_counts_all_groups():
    assert keep(SCORES, "top_k", 0.25) == [4, 6]
    assert keep(SCORES, "top_k", 0.25, type="smallest", include_zero=False) == [7, 1]
    assert keep(SCORES, "top_k", 1.0, include_zero=False) == [4, 6, 3, 2, 1, 7]
    assert keep(SCORES, "top_k", 0.01) == [4]


def test_top_k_is_not_fooled_by_rounding():
    assert 0.29 * 100 < 29
    assert len(keep(list(range(100)), "top_k", 0.29)) == 29


def test_top_k_abs_counts_groups():
    assert keep(SCORES, "top_k_abs", 3) == [4, 6, 3]
    assert len(keep(SCORES, "top_k_abs", 100)) == 8


def test_min_p_compares_with_the_best():
    assert keep(SCORES, "min_p", 0.5) == [4, 6]
    assert keep(SCORES, "min_p", 0.5, type="smallest", include_zero=False) == [7]
    assert len(keep(SCORES, "min_p", 0.0)) == 8


def test_linear_top_p_drops_a_batch_that_barely_varies():
    assert keep([0.005, 0.003, 0], value=0.9, include_zero=False) == []
    assert keep([0.02, 0.003, 0], value=0.9, include_zero=False) == [0]
    assert keep([0, 0, 0], value=0.9) == []


def test_negative_scores_are_never_taken_by_linear_top_p():
    # The sum is 3: the target 2.69 is reached by the 5 alone. In the second batch it is never reached.
    assert keep([5, -2], value=0.9) == [0]
    assert keep([-1, -2], value=0.9) == []


def test_equal_scores_share_the_softmax():
    assert keep([1, 1, 1], value=0.6, top_p_prob_mode="softmax") == [0, 1]
    assert len(keep([1] * 10, value=0.7, top_p_prob_mode="softmax")) == 7


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_candidates_nothing_is_kept(strategy):
    assert keep([0, 0], strategy, 0.5, include_zero=False) == []
    assert keep([], strategy, 0.5) == []


def test_rounding_errors_count_as_zero():
    assert keep([1e-11, 1], include_zero=False) == [1]


def test_z_scores_worked_by_hand():
    # Mean 5/3, squares 25/9 + 4/9 + 49/9 = 26/3, deviation sqrt(13/3) = 2.0817.
    assert z_scores([0, 1, 4]) == pytest.approx([-0.8006, -0.3203, 1.1209], abs=1e-4)
    assert z_scores([0.3, 0.1 + 0.2]) == [0, 0]
    assert z_scores([7]) == [0]


def test_z_score_keeps_what_stands_out():
    assert keep([0, 1, 4], "z_score", 0.0) == [2]
    assert keep([0, 1, 4], "z_score", -0.5) == [2, 1]
    assert keep([0, 1, 4], "z_score", 0.5, type="smallest") == [0]
    assert keep([0, 1, 4], "z_score", 2.0) == []
    assert keep([3, 3, 3], "z_score", 0.0) == [0, 1, 2]


SCALE_FREE = [("top_p", 0.7, "softmax_z"), ("z_score", 0.3, "linear"), ("z_score", -0.5, "linear")]


@pytest.mark.parametrize(("strategy", "value", "mode"), SCALE_FREE)
@pytest.mark.parametrize("kind", ["largest", "smallest"])
@given(scores=st.lists(st.integers(0, 1000), min_size=1, max_size=12), factor=st.sampled_from([0.001, 0.125, 8, 1000]))
def test_the_unit_of_rewards_does_not_matter(strategy, value, mode, kind, scores, factor):
    options = {"top_p_prob_mode": mode, "type": kind}
    assert keep([factor * s for s in scores], strategy, value, **options) == keep(scores, strategy, value, **options)


def test_the_softmax_of_raw_scores_does_depend_on_the_unit():
    small, large = (keep([factor * s for s in SCORES], value=0.9, top_p_prob_mode="softmax") for factor in (1, 10))
    assert (small, large) == ([4, 6], [4])
