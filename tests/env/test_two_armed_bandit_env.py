"""The two-armed bandit: who pays what, and what a seed changes."""

import statistics

import pytest

from ragen.env import make_env


@pytest.mark.parametrize("action, mean", [(1, 0.2), (2, 0.325)])
def test_the_arms_of_the_two_armed_bandit_have_their_means(action: int, mean: float):
    env = make_env("two_armed_bandit")
    rewards = []
    for member in range(3000):
        env.reset(0, member)
        rewards.append(env.step(action).reward)
    assert statistics.mean(rewards) == pytest.approx(mean, abs=0.04)
    lucky = sum(reward > 0.6 for reward in rewards) / 3000
    assert lucky == pytest.approx(0.25 if action == 2 else 0, abs=0.04)


def test_the_two_armed_bandit_counts_its_arms_and_success_means_finished():
    env = make_env("two_armed_bandit")
    env.reset(5)
    info = env.step(1).info
    assert (info["n_low_arm"], info["n_high_arm"], info["n_invalid"], info["success"]) == (1, 0, 0, 1)


def test_only_the_order_of_the_names_in_the_text_changes_with_the_seed():
    env = make_env("two_armed_bandit")
    texts = {env.reset(seed) for seed in range(20)}
    assert len(texts) == 2
    assert env.actions == {1: "phoenix", 2: "dragon"}
