"""Advantage estimators on numbers worked by hand and the vectors of the specification."""

from __future__ import annotations

import math

import pytest
import torch

from ragen.algorithms.advantage import (
    ESTIMATORS,
    AdvantageInputs,
    compute_advantages,
    postprocess,
    relative_lengths,
    soft_weights,
)
from ragen.algorithms.gae import bi_level_gae, gae, last_of_runs
from ragen.algorithms.gigpo import discounted_returns, gigpo, number_anchors
from ragen.algorithms.group_advantage import (
    arpo,
    brpo,
    group_statistics,
    grpo,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
)
from ragen.config.estimators import ESTIMATORS as DECLARED

# The vector of the specification: two replies of two tokens with two observation tokens between them.
REWARDS = torch.tensor([[0.0, 0, 0, 0, 0, 1]])
VALUES = torch.tensor([[0.1, 0.2, 0, 0, 0.3, 0.4]])
MASK = torch.tensor([[1.0, 1, 0, 0, 1, 1]])


def masked(tensor: torch.Tensor) -> list[float]:
    return tensor[MASK.bool()].tolist()


def one_token(*scores: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and mask of episodes with a single token."""
    return torch.tensor([[score] for score in scores]), torch.ones(len(scores), 1)


def numbers(count: int) -> torch.Tensor:
    return torch.arange(count)


def column(advantages: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
    return advantages[0][:, 0].tolist()


# --- GAE ------------------------------------------------------------------------------------------------------------


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
    advantages, returns = bi_level_gae(rewards, VALUES, MASK, gamma=1, lam=1, high_level_gamma=0.95, whiten=False)
    # Turns: .5 + .95 * .4 - .2 + .95 * .6 = 1.25 and 1 - .4 = .6; tokens before them add V' - V = .1.
    assert masked(advantages) == pytest.approx([1.35, 1.25, 0.7, 0.6])
    assert masked(returns) == pytest.approx([1.45, 1.45, 1.0, 1.0])


def test_a_turn_without_reward_is_still_a_turn():
    advantages, _ = bi_level_gae(REWARDS, VALUES, MASK, gamma=1, lam=1, high_level_gamma=0.95, whiten=False)
    # The first turn: 0 + .95 * .4 - .2 + .95 * .6 = .75.
    assert masked(advantages) == pytest.approx([0.85, 0.75, 0.7, 0.6])


def test_an_episode_without_any_reward_has_advantages():
    zeros = torch.zeros_like(REWARDS)
    advantages, _ = bi_level_gae(zeros, VALUES, MASK, gamma=1, lam=1, high_level_gamma=1, whiten=False)
    assert masked(advantages) == pytest.approx([-0.1, -0.2, -0.3, -0.4])


def test_replies_that_touch_need_turn_ends():
    rewards, values = torch.tensor([[0.5, 1.0]]), torch.tensor([[0.2, 0.4]])
    options = {"gamma": 1.0, "lam": 1.0, "high_level_gamma": 0.5, "whiten": False}
    one, _ = bi_level_gae(rewards, values, torch.ones(1, 2), **options)
    two, _ = bi_level_gae(rewards, values, torch.ones(1, 2), turn_ends=torch.ones(1, 2), **options)
    assert one[0].tolist() == pytest.approx([0.5 + 0.4 - 0.2 + 0.6, 0.6])
    assert two[0].tolist() == pytest.approx([0.5 + 0.5 * 0.4 - 0.2 + 0.5 * 0.6, 0.6])


def test_one_turn_makes_bi_level_gae_plain_gae():
    mask = torch.ones(1, 4)
    rewards, values = torch.tensor([[0.0, 0.1, 0, 1]]), torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    plain = gae(rewards, values, mask, gamma=0.9, lam=0.95)
    both = bi_level_gae(rewards, values, mask, gamma=0.9, lam=0.95, high_level_gamma=0.5)
    assert torch.allclose(plain[0], both[0]) and torch.allclose(plain[1], both[1])


def test_runs_end_where_the_mask_does():
    assert last_of_runs(torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]])).tolist() == [
        [False, True, False, True],
        [False, False, True, False],
    ]


# --- groups ---------------------------------------------------------------------------------------------------------


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
    advantages, returns = reinforce_plus_plus(REWARDS, MASK, gamma=0.9)
    assert masked(returns) == pytest.approx([0.729, 0.81, 0.9, 1.0])
    assert returns[MASK == 0].tolist() == [0.0, 0.0]
    assert sum(masked(advantages)) == pytest.approx(0, abs=1e-6)


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


def test_turns_with_equal_scores_have_exactly_their_score_as_mean():
    rewards = torch.full((7, 1), 0.1, dtype=torch.float64)
    stats = group_statistics(rewards, torch.zeros(7, dtype=torch.long), torch.tensor([0, 0, 0, 1, 1, 1, 1]))
    assert stats.std.tolist() == [0.0] * 7 and stats.mean.tolist() == [0.1] * 7


# --- GiGPO ----------------------------------------------------------------------------------------------------------

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


# --- by name, and what follows --------------------------------------------------------------------------------------


def batch(**changes) -> AdvantageInputs:
    torch.manual_seed(1)
    mask = (torch.rand(6, 9) < 0.6).float()
    mask[:, 0] = 1
    values = {
        "token_rewards": torch.randn(6, 9) * mask,
        "mask": mask,
        "groups": torch.tensor([0, 0, 0, 1, 1, 1]),
        "episodes": torch.arange(6),
        "values": torch.randn(6, 9),
        "turn_ids": torch.where(mask.bool(), 0, -1),
        "anchors": torch.zeros(6, 1, dtype=torch.long),
        "step_returns": torch.randn(6, 1),
    }
    return AdvantageInputs(**(values | changes))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_runs_by_name_and_is_zero_outside_the_mask(name):
    inputs = batch()
    for tensor in compute_advantages(name, inputs):
        assert tensor.shape == inputs.mask.shape
        assert tensor.isfinite().all()
        assert (tensor[inputs.mask == 0] == 0).all()


@pytest.mark.parametrize("name", ["gae", "bi_level_gae"])
def test_an_estimator_says_what_it_misses(name):
    with pytest.raises(AssertionError, match="needs values"):
        compute_advantages(name, batch(values=None))


def test_the_config_offers_every_estimator():
    switched = {declared.bi_level for declared in DECLARED.values() if declared.bi_level}
    assert switched == {"bi_level_gae"}
    assert set(DECLARED) | switched == set(ESTIMATORS)


@pytest.mark.parametrize("name", DECLARED)
def test_an_estimator_reads_no_more_than_it_declares(name):
    needed = {"values": {"values"}, "turns": {"turn_ids", "anchors", "step_returns"}}
    optional = set().union(*needed.values())
    given = set().union(*(needed[need] for need in DECLARED[name].needs))
    compute_advantages(name, batch(**dict.fromkeys(optional - given)))
    for field in given:
        with pytest.raises(AssertionError, match=f"needs {field}"):
            compute_advantages(name, batch(**{field: None}))


def test_soft_weights_are_relative_to_the_most_varied_group():
    rewards, mask = one_token(0, 2, 0, 4, 3, 3)
    inputs = AdvantageInputs(
        token_rewards=rewards, mask=mask, groups=torch.tensor([0, 0, 1, 1, 2, 2]), episodes=numbers(6)
    )
    assert soft_weights(inputs).tolist() == pytest.approx([0.5, 0.5, 1, 1, 0, 0], abs=1e-6)


def test_relative_lengths_average_one():
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    assert relative_lengths(mask).tolist() == pytest.approx([0.5, 1.5], abs=1e-5)


def test_post_processing_multiplies_in_the_order_of_the_specification():
    rewards = torch.tensor([[0.0, 0, 0], [2, 0, 0], [0, 0, 0], [4, 0, 0]])
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]])
    inputs = AdvantageInputs(token_rewards=rewards, mask=mask, groups=torch.tensor([0, 0, 1, 1]), episodes=numbers(4))
    advantages, metrics = postprocess(
        mask, inputs, soft_reweight=True, filter_loss_scaling="sqrt", kept_ratio=0.25, length_weight=True
    )
    # Group weights .5 and 1, times sqrt(.25), over relative lengths .5 and 1.5.
    assert advantages[:, 0].tolist() == pytest.approx([0.5, 1 / 6, 1, 1 / 3], abs=1e-5)
    assert metrics == pytest.approx(
        {"soft_reweight_min": 0.5, "soft_reweight_max": 1.0, "soft_reweight_mean": 0.75}, abs=1e-6
    )


@pytest.mark.parametrize(("mode", "factor"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_the_filter_scales_advantages_by_the_kept_share(mode, factor):
    inputs = batch()
    advantages, metrics = postprocess(inputs.mask, inputs, filter_loss_scaling=mode, kept_ratio=0.25)
    assert torch.equal(advantages, inputs.mask * factor)
    assert metrics == {}


def test_zero_task_advantage_comes_last():
    inputs = batch()
    advantages, metrics = postprocess(inputs.mask, inputs, soft_reweight=True, zero_task_advantage=True)
    assert advantages.abs().max() == 0
    assert "soft_reweight_max" in metrics
