"""The rollout filter: the vectors of the specification, its edge cases, and the filters free of the reward scale."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.algorithms.filter_strategies import STRATEGIES, TOP_P_MODES, deviation, select, z_scores
from ragen.algorithms.rollout_filter import METRICS, FilterSettings, RolloutFilter
from ragen.config import load_config
from ragen.config.actor_rollout_ref import FilterMetric, FilterStrategy, TopPMode
from ragen.errors import RagenError
from ragen.types import Episode, Group, Status, Turn

SCORES = [0, 0.5, 1, 2, 4.9, 0, 3, 0.1]


def keep(scores, strategy="top_p", value=1.0, **options) -> list[int]:
    return select(scores, FilterSettings(strategy=strategy, value=value, **options))


def episode(score: float = 0.0, *, penalty: float = 0.0, solved: bool = False, tokens: int = 1, entropy: float = 1.0):
    turn = Turn(
        user="",
        prompt_ids=[],
        response_ids=[0] * tokens,
        logprobs=[-7.0] * tokens,
        entropies=[entropy] * tokens,
        text="",
        stop_reason="",
        reward=score,
        penalty=penalty,
    )
    status = Status.SOLVED if solved else Status.FAILED
    return Episode(tag="A", env_type="", group_id=0, member=0, seed=0, turns=[turn], status=status)


def groups(*members: list[Episode]) -> list[Group]:
    """Groups with the ids 10, 11, ..."""
    return [Group(group_id=10 + index, episodes=episodes) for index, episodes in enumerate(members)]


def of_scores(*rows: list[float]) -> list[Group]:
    return groups(*[[episode(score) for score in row] for row in rows])


# --- strategies: the vectors of the specification -------------------------------------------------------------------


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


# --- filters free of the reward scale -------------------------------------------------------------------------------


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


def test_success_variance_ignores_shaped_rewards():
    # The first group fails at different costs; in the second one episode of two succeeds.
    batch = groups([episode(-0.1), episode(-5.0)], [episode(0.9, solved=True), episode(0.8)])
    shaped = RolloutFilter(FilterSettings(strategy="top_k_abs", value=1))(batch)
    outcome = RolloutFilter(FilterSettings(metric="success_variance", include_zero=False))(batch)
    assert shaped.kept_ids == [10]
    assert outcome.kept_ids == [11]
    assert outcome.group_scores == pytest.approx([0, math.sqrt(0.5)])


# --- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("reward_variance", math.sqrt(2)),
        ("reward", 2.0),
        ("reward_sum", 4.0),
        ("entropy", 0.75),
        ("entropy_variance", 0.5 * math.sqrt(0.5)),
        ("length", 3.0),
        ("success_variance", math.sqrt(0.5)),
    ],
)
def test_metrics_worked_by_hand(metric, expected):
    batch = groups([episode(1, tokens=2, entropy=0.5), episode(3, tokens=4, entropy=1.0, solved=True)])
    assert RolloutFilter(FilterSettings(metric=metric))(batch).group_scores == pytest.approx([expected])


def test_the_entropy_of_an_episode_is_the_mean_over_its_tokens_whatever_their_log_probs():
    play = episode(tokens=1, entropy=4.0)
    play.turns += episode(tokens=3, entropy=2.0).turns
    assert RolloutFilter(FilterSettings(metric="entropy"))(groups([play])).group_scores == [2.5]


@pytest.mark.parametrize("metric", ["entropy", "entropy_variance"])
def test_episodes_without_entropies_are_not_guessed_at(metric):
    play = episode(tokens=3)
    play.turns[0].entropies = []
    with pytest.raises(RagenError, match="do not hold the entropies"):
        RolloutFilter(FilterSettings(metric=metric))(groups([play, play]))


def test_the_score_holds_the_penalty():
    result = RolloutFilter(FilterSettings())(groups([episode(1.0), episode(1.0, penalty=-0.5)]))
    assert result.rewards == [[1.0, 0.5]]
    assert result.reward_stds == pytest.approx([0.5 / math.sqrt(2)])


def test_one_episode_does_not_vary():
    assert deviation([5.0]) == 0.0
    result = RolloutFilter(FilterSettings(include_zero=False))(of_scores([5.0], [7.0]))
    assert result.group_scores == [0.0, 0.0]
    assert result.kept == []


def test_equal_rewards_do_not_vary_whatever_their_rounding():
    assert deviation([0.1] * 16) == 0.0


# --- results --------------------------------------------------------------------------------------------------------


def test_kept_groups_stay_in_order_and_the_choice_is_told():
    batch = of_scores([0, 1], [0, 0], [0, 3])
    result = RolloutFilter(FilterSettings(strategy="top_k_abs", value=2))(batch)
    assert result.kept == [batch[0], batch[2]]
    assert result.kept_ids == [10, 12]
    assert result.selected_ids == [12, 10]
    assert result.group_ids == [10, 11, 12]
    assert result.rewards == [[0, 1], [0, 0], [0, 3]]
    assert result.kept_ratio == pytest.approx(2 / 3)


def test_metrics_of_all_and_of_kept_groups():
    result = RolloutFilter(FilterSettings(strategy="top_k_abs", value=1))(of_scores([0, 1], [0, 0], [0, 3]))
    root = math.sqrt(2)
    assert result.metrics == pytest.approx(
        {
            "in_group_std": 4 / root / 3,
            "in_group_max": 4 / 3,
            "in_group_mean": 2 / 3,
            "chosen_in_group_std": 3 / root,
            "chosen_in_group_max": 3,
            "chosen_in_group_mean": 1.5,
            "in_group_reward_std": 4 / root / 3,
            "in_group_reward_max": 4 / 3,
            "in_group_reward_mean": 2 / 3,
            "in_group_reward_sum": 4 / 3,
            "chosen_in_group_reward_std": 3 / root,
            "chosen_in_group_reward_max": 3,
            "chosen_in_group_reward_mean": 1.5,
            "chosen_in_group_reward_sum": 3,
            "filter_kept_count": 1,
            "filter_kept_ratio": 1 / 3,
            "filter_zero_count": 1,
        }
    )


@pytest.mark.parametrize(("metric", "family"), [("entropy", "entropy"), ("length", "length")])
def test_other_quantities_have_their_own_family_beside_the_rewards(metric, family):
    metrics = RolloutFilter(FilterSettings(metric=metric))(of_scores([0, 1], [0, 0])).metrics
    for prefix in ("in_group", "chosen_in_group"):
        for name in ("std", "max", "mean", "sum"):
            assert f"{prefix}_{family}_{name}" in metrics
            assert f"{prefix}_reward_{name}" in metrics
    assert metrics["in_group_mean"] == metrics[f"in_group_{family}_mean"]


def test_an_empty_choice_has_metrics():
    result = RolloutFilter(FilterSettings(value=0.9))(of_scores([1, 1], [2, 2]))
    assert result.kept == []
    assert result.metrics["chosen_in_group_reward_std"] == 0.0
    assert result.metrics["filter_kept_ratio"] == 0.0
    assert result.metrics["filter_zero_count"] == 2.0


def test_no_groups_are_no_error():
    result = RolloutFilter(FilterSettings())([])
    assert (result.kept, result.kept_ratio) == ([], 0.0)


def test_groups_may_differ_in_size():
    result = RolloutFilter(FilterSettings())(of_scores([0, 1, 2], [4]))
    assert result.rewards == [[0, 1, 2], [4]]


# --- settings -------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_config():
    assert FilterSettings.from_config(load_config("base").actor_rollout_ref.rollout) == FilterSettings()


def test_every_choice_of_the_config_has_a_function():
    assert set(get_args(FilterStrategy)) == set(STRATEGIES)
    assert set(get_args(get_args(FilterMetric)[0])) == set(METRICS)
    assert set(get_args(TopPMode)) == set(TOP_P_MODES)


def test_the_filter_loads_no_torch():
    code = (
        "import sys, ragen.algorithms.rollout_filter, ragen.evaluation.replay_filter; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
