"""GAE over turns and tokens, on numbers worked by hand and the vectors of the specification."""

from __future__ import annotations

import pytest
import torch

from ragen.algorithms.gae import bi_level_gae, gae

# The vector of the specification: two replies of two tokens with two observation tokens between them.
REWARDS = torch.tensor([[0.0, 0, 0, 0, 0, 1]])
VALUES = torch.tensor([[0.1, 0.2, 0, 0, 0.3, 0.4]])
MASK = torch.tensor([[1.0, 1, 0, 0, 1, 1]])
ENDS = torch.tensor([[0.0, 1, 0, 0, 0, 1]])


def masked(tensor: torch.Tensor) -> list[float]:
    return tensor[MASK.bool()].tolist()


def test_gae_skips_the_tokens_between_two_replies():
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=1, lam=1, whiten=False)
    assert masked(advantages) == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert masked(returns) == pytest.approx([1.0] * 4)


def test_gae_whitens_over_the_batch():
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=1, lam=1)
    assert masked(advantages) == pytest.approx([1.161895, 0.387298, -0.387298, -1.161895], abs=1e-6)
    assert masked(returns) == pytest.approx([1.0] * 4)


def test_gae_discounts_per_token():
    advantages, _ = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.95, whiten=False)
    assert masked(advantages) == pytest.approx([0.558727, 0.559915, 0.573, 0.6], abs=1e-6)


def test_what_stands_outside_the_mask_changes_nothing():
    noise = torch.tensor([[0.0, 0, 5, -7, 0, 0]])
    plain = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.95)
    noisy = gae(REWARDS + noise, VALUES + noise, MASK, gamma=0.9, lam=0.95)
    for left, right in zip(plain, noisy):
        assert torch.equal(left, right)
        assert left[MASK == 0].tolist() == [0.0, 0.0]


def test_holes_are_as_if_they_were_cut_out():
    torch.manual_seed(0)
    mask = (torch.rand(1, 30) < 0.5).float()
    rewards, values = torch.randn(1, 30) * mask, torch.randn(1, 30)
    keep = mask[0].bool()
    advantages, returns = gae(rewards, values, mask, gamma=0.97, lam=0.9, whiten=False)
    packed = gae(rewards[:, keep], values[:, keep], torch.ones(1, int(keep.sum())), gamma=0.97, lam=0.9, whiten=False)
    assert torch.allclose(advantages[:, keep], packed[0])
    assert torch.allclose(returns[:, keep], packed[1])


def test_bi_level_gae_on_the_vector_of_the_specification():
    rewards = torch.tensor([[0, 0.5, 0, 0, 0, 1]])
    advantages, returns = bi_level_gae(rewards, VALUES, MASK, ENDS, gamma=1, lam=1, high_level_gamma=0.95, whiten=False)
    # Turns: .5 + .95 * .4 - .2 + .95 * .6 = 1.25 and 1 - .4 = .6; tokens before them add V' - V = .1.
    assert masked(advantages) == pytest.approx([1.35, 1.25, 0.7, 0.6])
    assert masked(returns) == pytest.approx([1.45, 1.45, 1.0, 1.0])


def test_a_turn_without_reward_is_still_a_turn():
    advantages, _ = bi_level_gae(REWARDS, VALUES, MASK, ENDS, gamma=1, lam=1, high_level_gamma=0.95, whiten=False)
    # The first turn: 0 + .95 * .4 - .2 + .95 * .6 = .75.
    assert masked(advantages) == pytest.approx([0.85, 0.75, 0.7, 0.6])


def test_an_episode_without_any_reward_has_advantages():
    zeros = torch.zeros_like(REWARDS)
    advantages, _ = bi_level_gae(zeros, VALUES, MASK, ENDS, gamma=1, lam=1, high_level_gamma=1, whiten=False)
    assert masked(advantages) == pytest.approx([-0.1, -0.2, -0.3, -0.4])


def test_replies_that_touch_are_told_apart_by_turn_ends():
    rewards, values = torch.tensor([[0.5, 1.0]]), torch.tensor([[0.2, 0.4]])
    options = {"gamma": 1.0, "lam": 1.0, "high_level_gamma": 0.5, "whiten": False}
    one, _ = bi_level_gae(rewards, values, torch.ones(1, 2), torch.tensor([[0.0, 1]]), **options)
    two, _ = bi_level_gae(rewards, values, torch.ones(1, 2), torch.ones(1, 2), **options)
    assert one[0].tolist() == pytest.approx([0.5 + 0.4 - 0.2 + 0.6, 0.6])
    assert two[0].tolist() == pytest.approx([0.5 + 0.5 * 0.4 - 0.2 + 0.5 * 0.6, 0.6])


def test_one_turn_makes_bi_level_gae_plain_gae():
    mask = torch.ones(1, 4)
    rewards, values = torch.tensor([[0.0, 0.1, 0, 1]]), torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    plain = gae(rewards, values, mask, gamma=0.9, lam=0.95)
    both = bi_level_gae(
        rewards, values, mask, torch.tensor([[0.0, 0, 0, 1]]), gamma=0.9, lam=0.95, high_level_gamma=0.5
    )
    assert torch.allclose(plain[0], both[0]) and torch.allclose(plain[1], both[1])
