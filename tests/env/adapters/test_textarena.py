"""Games of TextArena, played: `make test-adapters`."""

from functools import partial

import pytest

pytest.importorskip("textarena", reason="needs TextArena; run: make test-adapters")

from ragen.env import check_env, make_env
from ragen.env.textarena.env import SURVEY
from ragen.errors import ConfigError

pytestmark = pytest.mark.adapters


@pytest.mark.parametrize("name", ["Mastermind-v0", "2048-v0", "FrozenLake-v0-random", "GuessTheNumber-v0"])
def test_a_sample_keeps_every_promise(name: str):
    check_env(partial(make_env, "textarena", {"name": name}), seeds=range(3))


@pytest.mark.parametrize("name", SURVEY.allowed)
def test_every_allowed_game_starts_on_a_level_of_its_seed(name: str):
    env = make_env("textarena", {"name": name})
    levels = []
    for seed in (0, 1, 2, 0):
        assert env.reset(seed)
        levels.append(env.level_content())
    assert levels[0] == levels[3] and len(set(levels)) > 1


def test_a_game_is_won():
    env = make_env("textarena", {"name": "GuessTheNumber-v0"})
    env.reset(2)
    number = env.game.state.game_state["game_number"]
    low = env.step(str(number - 1 or 20))
    assert not low.is_done and low.info["action_is_valid"] == 1
    result = env.step(f"[{number}]")
    assert (result.reward, result.terminated, result.info["success"]) == (1.0, True, 1.0)


def test_members_share_the_level_and_draw_apart():
    env = make_env("textarena", {"name": "2048-v0"})
    ends = set()
    for member in range(8):
        env.reset(1, member)
        ends.add("".join(env.step(move).observation for move in ("left", "up", "right", "down")))
    assert len(ends) > 1


def test_a_long_answer_is_not_given_to_the_game():
    env = make_env("textarena", {"name": "GuessTheNumber-v0"})
    result = env.step("9" * 5000)
    assert result.info["action_is_valid"] == 0 and "at most 1000 are read" in result.observation


def test_a_wrong_option_is_named():
    with pytest.raises(ConfigError, match=r"textarena\.options\.nonsense: unknown key"):
        make_env("textarena", {"name": "Mastermind-v0", "options": {"nonsense": 1}})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_survey_is_what_is_found_today():
    from tools.adapters.survey import main

    assert main(["textarena", "--check"]) == 0
