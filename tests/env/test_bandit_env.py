"""The bandit: who pays what, and what a group shares."""

import statistics

import pytest

from ragen.env import make_env
from ragen.env.bandit.env import ARMS
from ragen.errors import ConfigError


def test_there_are_twelve_training_pairs_and_eight_test_pairs_with_distinct_names():
    assert {split: len(pairs) for split, pairs in ARMS.items()} == {"train": 12, "test": 8}
    names = [name.lower() for pairs in ARMS.values() for pair in pairs for name in pair]
    assert len(set(names)) == 40
    assert all(1 <= len(name.split()) <= 2 for name in names)


def test_the_safe_arm_always_pays_a_tenth():
    env = make_env("bandit")
    for seed in range(20):
        env.reset(seed)
        result = env.step(env.low)
        assert (result.reward, result.is_done, result.info["success"]) == (0.1, True, 0.0)


def test_the_risky_arm_pays_one_in_a_quarter_of_the_pulls():
    env = make_env("bandit")
    rewards = []
    for member in range(2000):
        env.reset(3, member)
        result = env.step(env.high)
        assert result.info["success"] == 1.0
        rewards.append(result.reward)
    assert set(rewards) == {0.0, 1.0}
    assert statistics.mean(rewards) == pytest.approx(0.25, abs=0.04)


def test_a_group_shares_names_and_order_but_not_the_luck():
    env = make_env("bandit")
    seen, rewards = set(), set()
    for member in range(32):
        seen.add((env.reset(11, member), tuple(env.actions.items())))
        rewards.add(env.step(env.high).reward)
    assert len(seen) == 1
    assert rewards == {0.0, 1.0}


def test_every_pair_and_both_orders_occur():
    env = make_env("bandit", {"split": "test"})
    orders = {(env.reset(seed), tuple(env.actions.values()))[1] for seed in range(300)}
    assert orders == {order for low, high in ARMS["test"] for order in ((low, high), (high, low))}


def test_ids_start_where_the_config_says():
    assert list(make_env("bandit").actions) == [1, 2]
    assert list(make_env("bandit", {"action_space_start": 0}).actions) == [0, 1]


def test_the_text_after_the_pull_states_arm_and_points():
    env = make_env("bandit")
    first = env.reset(0)
    assert all(name in first for name in env.actions.values())
    assert env.step(env.low).observation == f"You pulled {env.actions[env.low]} and got 0.1 points."


def test_an_id_that_is_no_arm_earns_nothing_and_is_invalid():
    for env_type in ("bandit", "two_armed_bandit"):
        env = make_env(env_type)
        env.reset(0)
        result = env.step(99)
        assert (result.reward, result.is_done) == (0.0, True)
        assert (result.info["action_is_valid"], result.info["success"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "env_type, config, named",
    [
        ("bandit", {"split": "val"}, "bandit.split"),
        ("bandit", {"action_space_start": -1}, "bandit.action_space_start"),
        ("two_armed_bandit", {"low_risk_name": " "}, "two_armed_bandit.low_risk_name"),
        ("two_armed_bandit", {"low_risk_name": "Dragon"}, "two_armed_bandit.high_risk_name"),
    ],
)
def test_a_bad_option_is_named(env_type: str, config: dict, named: str):
    with pytest.raises(ConfigError, match=named):
        make_env(env_type, config)
