"""Games of TextWorld, made and played: `make test-adapters`."""

from pathlib import Path

import pytest

pytest.importorskip("textworld", reason="needs TextWorld; run: make test-adapters")

from ragen.env import check_env, make_env
from ragen.env.textworld.env import TextWorldEnv
from ragen.env.textworld.games import game_file

pytestmark = pytest.mark.adapters


@pytest.fixture(scope="module", autouse=True)
def games(tmp_path_factory: pytest.TempPathFactory):
    """A cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("games")
        patch.setenv("RAGEN_GAMES", str(folder))
        yield folder


def test_every_promise_is_kept():
    check_env(TextWorldEnv, seeds=range(2))


def test_a_game_is_made_once_and_whole(games: Path):
    settings = {"nb_rooms": 1, "nb_objects": 2, "quest_length": 1, "quest_breadth": 1}
    first = game_file(5, settings)
    made = first.stat().st_mtime_ns
    assert game_file(5, settings) == first and first.stat().st_mtime_ns == made
    assert game_file(6, settings) != first
    assert not list(games.glob("making-*"))


def test_the_solver_wins_and_the_commands_are_listed():
    env = make_env("textworld", {"max_steps": 10})
    assert "You can: " in env.reset(0)
    plan = env.solve()
    assert plan and plan[0] in env.render() and plan[0] in env.hint()
    results = [env.step(command.upper()) for command in plan]
    assert (results[-1].reward, results[-1].terminated, results[-1].info["success"]) == (1.0, True, 1.0)
    assert "RESTART" not in results[-1].observation and "\n>" not in results[-1].observation


def test_commands_to_the_interpreter_stay_outside():
    env = make_env("textworld", {"show_commands": False})
    assert "You can: " not in env.reset(0)
    for text in ("save", "quit", "look. save", "look then save", "restore"):
        assert env.step(text).info["action_is_valid"] == 0
    assert env.step("look").info["action_is_valid"] == 1


def test_an_episode_ends_at_its_limit():
    env = make_env("textworld", {"max_steps": 2})
    env.reset(0)
    assert not env.step("look").is_done
    assert env.step("look").truncated
