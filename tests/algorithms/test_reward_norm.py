"""Normalised scores, worked by hand."""

from __future__ import annotations

import pytest

from ragen.algorithms.reward_norm import METHODS, normalize_scores
from ragen.types import Episode, Turn


def episode(score: float, *, group: int = 0, tag: str = "A", penalty: float = 0.0) -> Episode:
    turn = Turn(
        user="", prompt_ids=[], response_ids=[], logprobs=[], text="", stop_reason="", reward=score, penalty=penalty
    )
    return Episode(tag=tag, env_type="", group_id=group, member=0, seed=0, turns=[turn])


def normalize(*episodes: Episode, grouping: str = "state", method: str = "mean_std") -> list[float]:
    return normalize_scores(episodes, grouping=grouping, method=method)


def test_identity_is_the_reward_and_the_penalty():
    assert normalize(episode(1.0, penalty=-0.25), episode(2.0), method="identity") == [0.75, 2.0]


def test_mean_centres_each_group():
    scores = normalize(episode(0.0), episode(2.0), episode(5.0, group=1), episode(6.0, group=1), method="mean")
    assert scores == [-1.0, 1.0, -0.5, 0.5]


def test_mean_std_divides_by_the_sample_standard_deviation():
    # Mean 2, deviations -2, -1, 3: variance (4 + 1 + 9) / 2 = 7; 1e-6 is added to its root.
    scores = normalize(episode(0.0), episode(1.0), episode(5.0))
    assert scores == pytest.approx([-0.75592866, -0.37796433, 1.13389299], abs=1e-8)


def test_mean_std_of_equal_scores_is_zero():
    assert normalize(episode(0.1), episode(0.1), episode(0.1)) == [0.0, 0.0, 0.0]
    assert normalize(episode(1.0), episode(1.0 + 1e-7)) == [0.0, 0.0]


def test_the_penalty_is_normalised_with_the_reward():
    assert normalize(episode(1.0, penalty=-1.0), episode(2.0)) == pytest.approx([-0.707106, 0.707106], abs=1e-5)


def test_asym_clip_keeps_scores_between_minus_one_and_three():
    # Fifteen zeros and one 16: mean 1, std 4, so 3.75 for the best. With the sign turned, -3.75.
    good = normalize(*[episode(0.0)] * 15, episode(16.0), method="asym_clip")
    assert good == pytest.approx([-0.25] * 15 + [3.0])
    bad = normalize(*[episode(0.0)] * 15, episode(-16.0), method="asym_clip")
    assert bad == pytest.approx([0.25] * 15 + [-1.0])


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [("state", [-1.0, 1.0, 0.0, 0.0]), ("inductive", [-2.0, 0.0, 2.0, 0.0]), ("batch", [-3.0, -1.0, 1.0, 3.0])],
)
def test_the_grouping_says_which_episodes_are_compared(grouping, expected):
    episodes = [episode(0.0), episode(2.0), episode(4.0, group=1), episode(6.0, group=2, tag="B")]
    assert normalize(*episodes, grouping=grouping, method="mean") == expected


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_done_when_every_group_has_one_member(method):
    assert normalize(episode(3.0), episode(5.0, group=1), method=method) == [3.0, 5.0]


def test_a_single_member_beside_larger_groups_is_its_own_mean():
    assert normalize(episode(0.0), episode(2.0), episode(9.0, group=1), method="mean")[2] == 0.0
    assert normalize(episode(0.0), episode(2.0), episode(9.0, group=1), method="mean_std")[2] == 0.0


def test_the_order_of_the_episodes_is_kept():
    episodes = [episode(0.0), episode(10.0, group=1), episode(2.0), episode(20.0, group=1)]
    assert normalize(*episodes, method="mean") == [-1.0, -5.0, 1.0, 5.0]


def test_the_episodes_keep_their_raw_scores_for_the_filter():
    episodes = [episode(0.0), episode(2.0)]
    normalize(*episodes)
    assert [e.score for e in episodes] == [0.0, 2.0]


def test_no_episodes_are_no_error():
    assert normalize() == []
