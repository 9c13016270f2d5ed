"""Countdown judges expressions, and says what is wrong with them."""

import pytest

from ragen.env.countdown.env import CountdownConfig, CountdownEnv
from ragen.env.countdown.puzzle import Puzzle


@pytest.fixture
def env() -> CountdownEnv:
    env = CountdownEnv(CountdownConfig(max_steps=2))
    assert env.load(Puzzle((13, 6, 5), 83)) == "Numbers: 13, 6, 5. Target: 83."
    return env


def test_the_right_expression_earns_one(env):
    result = env.step("6 * 13 + 5")
    assert (result.reward, result.terminated, result.truncated, result.info["success"]) == (1, True, False, 1)


def test_a_wrong_one_is_told_its_value_and_the_last_one_ends_the_episode(env):
    first, second = env.step("13 + 6 + 5"), env.step("13 / (6 - 5)")
    assert first.observation.endswith("Your last answer gives 24, not 83.")
    assert second.observation.endswith("Your last answer gives 13, not 83.")
    ends = [(result.is_done, result.truncated, result.info["action_is_valid"]) for result in (first, second)]
    assert ends == [(False, False, 1), (True, True, 1)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("83", "it must use each of 13, 6, 5 exactly once"),
        ("13 * 6 + 5 + 0", "it must use each"),
        ("13 * 6 + 5 = 83", "it holds more than numbers, operators and parentheses"),
        ("13 / (6 - 5 - 1)", "it must use each"),
        ("-13 + 6 * 5", "it holds a sign in front of a number"),
        ("13 ** 6 ** 5", "it holds an operator that is not allowed"),
        ("", "it is not an arithmetic expression"),
    ],
)
def test_what_is_no_expression_of_the_numbers_is_refused(env, text, reason):
    result = env.step(text)
    assert result.info["action_is_valid"] == 0 and f"refused: {reason}" in result.observation


def test_fractions_on_the_way_count():
    env = CountdownEnv()
    env.load(Puzzle((1, 3, 6), 2))
    assert env.step("1 / 3 * 6").terminated


def test_the_solver_and_its_thought(env):
    assert env.solve() == ["13 * 6 + 5"] and env.hint() == "13 * 6 = 78, 78 + 5 = 83."


def test_examples_show_the_form_and_not_the_solution():
    env = CountdownEnv()
    for seed in range(50):
        env.reset(seed)
        result = env.step(env.example_answer())
        assert result.info["action_is_valid"] == 1 and not result.terminated


def test_the_order_of_the_numbers_does_not_make_a_level(env):
    content = env.level_content()
    env.load(Puzzle((5, 13, 6), 83))
    assert env.level_content() == content
