"""GiGPO: turns compared with the other turns that began in the same state, on numbers worked by hand."""

from __future__ import annotations

import math

import torch

from ragen.algorithms.gigpo import discounted_returns, gigpo, number_anchors
from ragen.algorithms.group_advantage import grpo

GIGPO = {  # Two episodes of one group, two turns each; both start from state 7.
    "token_rewards": torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0]]),
    "mask": torch.tensor([[1.0, 1, 0, 1], [1, 0, 1, 1]]),
    "groups": torch.tensor([5, 5]),
    "episodes": torch.tensor([0, 1]),
    "turn_ids": torch.tensor([[0, 0, -1, 1], [0, -1, 1, 1]]),
    "anchors": torch.tensor([[7, 8], [7, 9]]),
    "step_returns": torch.tensor([[0.9, 1.0], [0.0, 0.0]]),
}


def test_gigpo_compares_what_followed_from_the_same_state():
    advantages, returns = gigpo(**GIGPO, norm_by_std=False)
    assert torch.allclose(advantages, torch.tensor([[0.95, 0.95, 0, 0.5], [-0.95, 0, -0.5, -0.5]]))
    assert torch.equal(advantages, returns)


def test_gigpo_divides_both_levels_by_their_deviation():
    advantages, _ = gigpo(**GIGPO)
    half = 1 / math.sqrt(2)  # two values: each half their distance from the mean, over that distance / sqrt(2)
    expected = torch.tensor([[2 * half, 2 * half, 0, half], [-2 * half, 0, -half, -half]])
    assert torch.allclose(advantages, expected, atol=1e-5)


def test_gigpo_without_steps_is_grpo():
    plain = grpo(*(GIGPO[key] for key in ("token_rewards", "mask", "groups", "episodes")))
    assert torch.equal(gigpo(**GIGPO, step_weight=0.0)[0], plain[0])
    unique_states = GIGPO | {"anchors": torch.tensor([[0, 1], [2, 3]])}
    assert torch.equal(gigpo(**unique_states)[0], plain[0])


def test_equal_states_of_different_groups_are_not_compared():
    apart = GIGPO | {"groups": torch.tensor([5, 6])}
    advantages, _ = gigpo(**apart, norm_by_std=False)
    assert torch.allclose(advantages, torch.tensor([[1.0, 1, 0, 1], [0, 0, 0, 0]]))


def test_gigpo_is_the_same_when_each_turn_is_a_row():
    rows = {
        "token_rewards": torch.tensor([[0.0, 1], [1, 0], [0, 0], [0, 0]]),  # the episode's score on the last token
        "mask": torch.tensor([[1.0, 1], [1, 0], [1, 0], [1, 1]]),
        "groups": torch.tensor([5, 5, 5, 5]),
        "episodes": torch.tensor([0, 0, 1, 1]),
        "turn_ids": torch.tensor([[0, 0], [0, -1], [0, -1], [0, 0]]),
        "anchors": torch.tensor([[7], [8], [7], [9]]),
        "step_returns": torch.tensor([[0.9], [1.0], [0.0], [0.0]]),
    }
    advantages, _ = gigpo(**rows, norm_by_std=False)
    assert torch.allclose(advantages, torch.tensor([[0.95, 0.95], [0.5, 0], [-0.95, 0], [-0.5, -0.5]]))


def test_anchors_and_returns_from_episodes():
    assert number_anchors([["A", "B"], ["A"], []]).tolist() == [[0, 1], [0, -1], [-1, -1]]
    assert torch.allclose(discounted_returns([[0, 1], [2], []], 0.9), torch.tensor([[0.9, 1], [2, 0], [0, 0]]))
