"""Episodes compared with the others of their group, on numbers worked by hand and the vectors of the specification."""

from __future__ import annotations

import math

import pytest
import torch

from ragen.algorithms.group_advantage import (
    arpo,
    brpo,
    group_statistics,
    grpo,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
)
from tests.algorithms.group_numbers import column, numbers, one_token


def test_grpo_and_dr_grpo_on_the_vector_of_the_specification():
    rewards, mask = one_token(1, 0, 0, 3)
    groups = torch.zeros(4, dtype=torch.long)
    expected = [0, -0.707106, -0.707106, 1.414213]
    assert column(grpo(rewards, mask, groups, numbers(4))) == pytest.approx(expected, abs=1e-6)
    assert column(grpo(rewards, mask, groups, numbers(4), norm_by_std=False)) == pytest.approx([0, -1, -1, 2])


def test_groups_are_compared_apart_wherever_their_rows_stand():
    rewards, mask = one_token(0, 10, 2, 30)
    advantages = grpo(rewards, mask, torch.tensor([7, 3, 7, 3]), numbers(4), norm_by_std=False)
    assert column(advantages) == pytest.approx([-1, -10, 1, 10])


def test_an_episode_alone_in_its_group_keeps_its_score():
    rewards, mask = one_token(5, 1, 3)
    groups = torch.tensor([0, 1, 1])
    assert column(grpo(rewards, mask, groups, numbers(3)))[0] == pytest.approx(5, abs=1e-5)
    assert column(rloo(rewards, mask, groups, numbers(3))) == pytest.approx([5, -2, 2])


@pytest.mark.parametrize("score", [0.1, 10.9, -1234.567])
def test_equal_scores_have_no_advantage_whatever_their_rounding(score):
    rewards, mask = one_token(*[score] * 7)
    advantages = column(grpo(rewards, mask, torch.zeros(7, dtype=torch.long), numbers(7)))
    assert max(map(abs, advantages)) < 1e-6


def test_the_advantage_lies_on_sampled_tokens_only():
    rewards = torch.tensor([[0.0, 0, 1], [0, 0, 0]])
    mask = torch.tensor([[1.0, 0, 1], [1, 1, 0]])
    advantages, returns = grpo(rewards, mask, torch.zeros(2, dtype=torch.long), numbers(2), norm_by_std=False)
    assert advantages.tolist() == [[0.5, 0, 0.5], [-0.5, -0.5, 0]]
    assert torch.equal(advantages, returns)


def test_brpo_is_grpo_with_one_group_for_the_batch():
    rewards, mask = one_token(1, 0, 0, 3)
    # Episode numbers repeat from group to group and are still four episodes.
    advantages = brpo(rewards, mask, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
    assert column(advantages) == pytest.approx([0, -0.707106, -0.707106, 1.414213], abs=1e-6)


def test_arpo_takes_the_score_itself():
    rewards, mask = one_token(1, 0, -2, 3)
    advantages = arpo(rewards, mask, torch.zeros(4, dtype=torch.long), numbers(4))
    assert column(advantages) == pytest.approx([1, 0, -2, 3], abs=1e-5)


def test_rloo_compares_with_the_others():
    rewards, mask = one_token(1, 0, 0, 3)
    advantages = rloo(rewards, mask, torch.zeros(4, dtype=torch.long), numbers(4))
    assert column(advantages) == pytest.approx([1 - 1, -4 / 3, -4 / 3, 3 - 1 / 3])


def test_reinforce_plus_plus_carries_rewards_over_holes():
    rewards, mask = torch.tensor([[0.0, 0, 0, 0, 0, 1]]), torch.tensor([[1.0, 1, 0, 0, 1, 1]])
    advantages, returns = reinforce_plus_plus(rewards, mask, gamma=0.9)
    assert returns[0].tolist() == pytest.approx([0.729, 0.81, 0, 0, 0.9, 1.0])
    assert advantages.sum().item() == pytest.approx(0, abs=1e-6)
    assert advantages[0, 2:4].tolist() == [0.0, 0.0]


def test_reinforce_plus_plus_baseline_centres_then_whitens():
    rewards, mask = one_token(0, 2, 0, 4)
    advantages = reinforce_plus_plus_baseline(rewards, mask, torch.tensor([0, 0, 1, 1]), numbers(4))
    # Centred -1, 1, -2, 2: variance 10 / 3.
    scale = math.sqrt(10 / 3)
    assert column(advantages) == pytest.approx([-1 / scale, 1 / scale, -2 / scale, 2 / scale])


TURN_LEVEL = {  # Episode 0 has three turns, episode 1 has one; every row carries the score of its episode.
    "token_rewards": torch.tensor([[1.0], [1.0], [1.0], [3.0]]),
    "mask": torch.ones(4, 1),
    "groups": torch.zeros(4, dtype=torch.long),
    "episodes": torch.tensor([0, 0, 0, 1]),
}


def test_an_episode_with_many_turns_counts_once():
    stats = group_statistics(TURN_LEVEL["token_rewards"], TURN_LEVEL["groups"], TURN_LEVEL["episodes"])
    assert stats.mean.tolist() == [2.0] * 4  # not 1.5
    assert stats.std.tolist() == pytest.approx([math.sqrt(2)] * 4)
    assert stats.count.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (grpo, [-0.707106, -0.707106, -0.707106, 0.707106]),
        (brpo, [-0.707106, -0.707106, -0.707106, 0.707106]),
        (arpo, [1, 1, 1, 3]),
        (rloo, [-2, -2, -2, 2]),
    ],
)
def test_all_turns_of_an_episode_share_its_advantage(estimator, expected):
    assert column(estimator(**TURN_LEVEL)) == pytest.approx(expected, abs=1e-5)


def test_every_turn_pays_for_its_own_kl_and_the_episode_counts_with_their_mean():
    rewards = torch.tensor([[1.0], [0.5], [3.0]])  # a KL penalty makes the turns of episode 4 differ
    episodes = torch.tensor([4, 4, 2])
    stats = group_statistics(rewards, torch.zeros(3, dtype=torch.long), episodes)
    assert stats.mean.tolist() == [(0.75 + 3) / 2] * 3
    advantages = grpo(rewards, torch.ones(3, 1), torch.zeros(3, dtype=torch.long), episodes, norm_by_std=False)
    assert column(advantages) == pytest.approx([-0.875, -1.375, 1.125])


def test_rloo_leaves_out_all_turns_of_the_episode_whatever_kl_they_paid():
    rewards = torch.tensor([[1.0], [0.5], [3.0]])  # a KL penalty makes the turns of episode 4 differ
    episodes = torch.tensor([4, 4, 2])
    advantages = rloo(rewards, torch.ones(3, 1), torch.zeros(3, dtype=torch.long), episodes)
    # The turns of episode 4 less the other's 3; the other one less the mean .75 of the two turns.
    assert column(advantages) == pytest.approx([-2.0, -2.5, 2.25])


def test_turns_with_equal_scores_have_exactly_their_score_as_mean():
    rewards = torch.full((7, 1), 0.1, dtype=torch.float64)
    stats = group_statistics(rewards, torch.zeros(7, dtype=torch.long), torch.tensor([0, 0, 0, 1, 1, 1, 1]))
    assert stats.std.tolist() == [0.0] * 7 and stats.mean.tolist() == [0.1] * 7
