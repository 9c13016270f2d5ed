"""The rollout filter: group scores, what is kept, and what is measured."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import get_args

import pytest

from ragen.algorithms.filter_strategies import STRATEGIES, TOP_P_MODES, deviation
from ragen.algorithms.rollout_filter import METRICS, FilterSettings, RolloutFilter
from ragen.config import load_config
from ragen.config.actor_rollout_ref import FILTER_STRATEGIES, FilterMetric, TopPMode
from ragen.errors import RagenError
from ragen.types import Episode, Group, Status, Turn


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


def test_success_variance_ignores_shaped_rewards():
    # The first group fails at different costs; in the second one episode of two succeeds.
    batch = groups([episode(-0.1), episode(-5.0)], [episode(0.9, solved=True), episode(0.8)])
    shaped = RolloutFilter(FilterSettings(strategy="top_k_abs", value=1))(batch)
    outcome = RolloutFilter(FilterSettings(metric="success_variance", include_zero=False))(batch)
    assert shaped.kept_ids == [10]
    assert outcome.kept_ids == [11]
    assert outcome.group_scores == pytest.approx([0, math.sqrt(0.5)])


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
            "filter_dropped_count": 2,
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


def test_the_defaults_are_those_of_the_config():
    assert FilterSettings.from_config(load_config("base").actor_rollout_ref.rollout) == FilterSettings()


def test_every_choice_of_the_config_has_a_function():
    assert set(FILTER_STRATEGIES) == set(STRATEGIES)
    assert set(get_args(get_args(FilterMetric)[0])) == set(METRICS)
    assert set(get_args(TopPMode)) == set(TOP_P_MODES)


def test_the_filter_loads_no_torch():
    code = (
        "import sys, ragen.algorithms.rollout_filter, ragen.evaluation.replay_filter; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
