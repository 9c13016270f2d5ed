"""Guess-the-number answers every guess, and bisection finds the number without knowing it."""

import pytest

from ragen.env.guess_number.env import GuessNumberConfig, GuessNumberEnv
from ragen.errors import ConfigError
from ragen.seeding import Rng


@pytest.fixture
def env() -> GuessNumberEnv:
    env = GuessNumberEnv(GuessNumberConfig(num_numbers=8, max_first=100, max_steps=4))
    assert env.load(11, 16) == "Numbers: 11 to 18."
    return env


def test_guesses_are_answered_until_the_number_is_found(env):
    low, high, right = env.step("13"), env.step(" 18 "), env.step("16")
    assert low.observation == "Numbers: 11 to 18.\nGuesses: 13 too low."
    assert high.observation.endswith("Guesses: 13 too low, 18 too high.")
    assert right.observation.endswith("18 too high, 16 right.")
    ends = [(result.reward, result.terminated, result.info["success"]) for result in (low, high, right)]
    assert ends == [(0, False, 0), (0, False, 0), (1, True, 1)]


def test_the_last_guess_ends_the_episode(env):
    results = [env.step("11") for _ in range(4)]
    assert [result.truncated for result in results] == [False, False, False, True]
    assert [result.info["action_is_effective"] for result in results] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("thirteen", "it is not a whole number"),
        ("13 or 14", "it is not a whole number"),
        ("-13", "it is not a whole number"),
        ("١٣", "it is not a whole number"),
        ("19", "19 is not from 11 to 18"),
        ("0", "0 is not from 11 to 18"),
        ("9" * 5000, "it is not a whole number"),
    ],
)
def test_what_is_no_number_of_the_range_is_refused_and_counts(env, text, reason):
    result = env.step(text)
    assert result.info["action_is_valid"] == 0
    assert result.observation == f"Numbers: 11 to 18.\nYour last answer was refused: {reason}."
    assert env.step("13").observation.endswith("to 18.\nGuesses: 13 too low.")


def test_bisection_goes_by_what_was_said(env):
    assert (env.solve(), env.hint()) == (["14", "16"], "From 11 to 18, middle 14.")
    env.step("15")
    assert (env.solve(), env.hint()) == (["17", "16"], "From 16 to 18, middle 17.")


@pytest.mark.parametrize("num_numbers", [2, 3, 16, 63, 64, 100])
def test_bisection_finds_every_number_within_the_smallest_budget(num_numbers):
    needed = num_numbers.bit_length()
    env = GuessNumberEnv(GuessNumberConfig(num_numbers=num_numbers, max_steps=needed))
    lengths = []
    for secret in range(1, num_numbers + 1):
        env.load(1, secret)
        lengths.append(len(env.solve()))
    assert max(lengths) == needed
    with pytest.raises(ConfigError, match=f"takes {needed} guesses: raise max_steps"):
        GuessNumberConfig(num_numbers=num_numbers, max_steps=needed - 1)


def test_seeds_name_the_same_levels_on_every_machine():
    env = GuessNumberEnv(GuessNumberConfig(num_numbers=16, max_first=80, max_steps=5))
    found = []
    for seed in range(4):
        env.reset(seed)
        found.append(env.level_content())
    assert found == ["17 32 22", "66 81 74", "24 39 38", "44 59 53"]


def test_examples_and_random_answers_are_numbers_of_the_range(env):
    env.load(11, 16)
    example, texts = env.example_answer(), {env.sample_text(Rng(draw, "test")) for draw in range(200)}
    assert texts == {str(number) for number in range(11, 19)} and example in texts - {"16"}
