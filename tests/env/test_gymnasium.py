"""Gymnasium environments behind our interface, and the example that shows them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from ragen.env import make_env
from ragen.errors import ConfigError, MissingExtra

EXAMPLE = Path(__file__).parents[2] / "examples" / "gymnasium_env.py"


def test_the_example_plays_both_environments():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True)
    assert done.stdout.count("reward ") == 2
    assert "PFFF\nFHFH\nFFFH\nHFFG" in done.stdout
    assert "-- Stick" in done.stdout or "-- Hit" in done.stdout


def test_actions_get_names_where_none_are_given():
    assert make_env("gymnasium", {"env_id": "CartPole-v1"}).actions == {0: "action 0", 1: "action 1"}


def test_given_names_are_used_in_order():
    env = make_env("gymnasium", {"env_id": "Blackjack-v1", "action_names": ["Stick", "Hit"]})
    assert env.actions == {0: "Stick", 1: "Hit"}


def test_a_walk_without_slipping_reaches_the_goal_with_success():
    env = make_env("gymnasium", {"env_id": "FrozenLake-v1", "env_kwargs": {"is_slippery": False}})
    assert env.reset(0) == "0"
    results = [env.step(action) for action in (1, 1, 2, 1, 2, 2)]  # down, down, right, down, right, right
    assert [result.observation for result in results] == ["4", "8", "9", "13", "14", "15"]
    assert (results[-1].reward, results[-1].is_done, results[-1].info["success"]) == (1.0, True, 1.0)


def test_a_move_against_the_edge_is_not_effective():
    env = make_env("gymnasium", {"env_id": "FrozenLake-v1", "env_kwargs": {"is_slippery": False}})
    env.reset(0)
    assert env.step(0).info["action_is_effective"] == 0.0


def test_members_share_the_first_observation_and_then_slip_apart():
    env = make_env("gymnasium", {"env_id": "FrozenLake-v1"})
    firsts, ends = set(), set()
    for member in range(16):
        firsts.add(env.reset(1, member))
        ends.add(env.step(2).observation)  # to the right, or sideways: down, or up against the edge
    assert firsts == {"0"}
    assert ends == {"0", "1", "4"}


def test_arrays_become_lists_of_numbers():
    text = make_env("gymnasium", {"env_id": "CartPole-v1"}).reset(0)
    assert text.startswith("[") and text.count(",") == 3


def test_the_picture_is_the_environments_own_or_none():
    assert make_env("gymnasium", {"env_id": "FrozenLake-v1"}).render_rgb() is None


@pytest.mark.parametrize(
    "config, message",
    [
        ({"env_id": "NoSuchThing-v0"}, "NoSuchThing"),
        ({"env_id": "FrozenLake-v1", "env_kwargs": {"nonsense": 1}}, "nonsense"),
        ({"env_id": "Blackjack-v1", "action_names": ["Hit"]}, "2 actions"),
        ({"env_id": "Blackjack-v1", "action_names": ["Hit", "hit"]}, "action_names"),
        ({"env_id": "Pendulum-v1"}, "Discrete"),
    ],
)
def test_a_bad_option_is_named(config: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make_env("gymnasium", config)


def test_without_gymnasium_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r"pip install -e \.\[gym\]"):
        make_env("gymnasium")
