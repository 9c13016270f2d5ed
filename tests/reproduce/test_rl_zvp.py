"""Groups without variance, on numbers worked by hand."""

import pytest
import torch

from ragen.algorithms.group_advantage import grpo
from ragen.algorithms.own_parts import check_estimator
from ragen.reproduce.rl_zvp import rl_zvp
from tests.algorithms.group_numbers import numbers


def test_groups_without_variance_are_learned_from_token_by_token():
    rewards = torch.tensor([[0.0, 1], [0, 1], [0, 0], [0, 0], [0, 1], [0, 0]])
    mask, groups = torch.ones(6, 2), torch.tensor([0, 0, 1, 1, 2, 2])
    entropies = torch.tensor([[0.5, 0.0], [1.0, 0.2], [0.5, 0.0], [1.0, 0.2], [0.3, 0.3], [0.3, 0.3]])
    advantages, _ = rl_zvp(rewards, mask, groups, numbers(6), entropies)
    assert advantages[:2].flatten().tolist() == pytest.approx([0.05, 0, 0.1, 0.02])
    assert advantages[2:4].flatten().tolist() == pytest.approx([0, -0.05, 0, -0.08])
    assert torch.equal(advantages[4:], grpo(rewards, mask, groups, numbers(6))[0][4:])


def test_what_was_not_sampled_does_not_count():
    rewards, mask = torch.tensor([[0.0, 0], [0, 0]]), torch.tensor([[1.0, 0], [1, 1]])
    entropies = torch.tensor([[0.4, 9.0], [0.4, 0]])
    advantages, _ = rl_zvp(rewards, mask, torch.zeros(2, dtype=torch.long), numbers(2), entropies)
    assert advantages.flatten().tolist() == pytest.approx([0, 0, 0, -0.04])


def test_a_configuration_may_name_it():
    check_estimator("ragen.reproduce.rl_zvp:rl_zvp")
