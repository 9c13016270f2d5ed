"""Gymnasium environments behind our interface, and the example that shows them."""

import string
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("gymnasium")

import gymnasium

from ragen.env import StepResult, check_env, make_env
from ragen.env.gymnasium import GymnasiumConfig, GymnasiumEnv
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
    env = make_env("gymnasium", {"env_id": "Blackjack-v1", "action_names": ["Stick", "Hit"], "success": "reward > 0"})
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
        ({"env_id": "Blackjack-v1"}, "gymnasium.success is not set, and Blackjack-v1 has no reward threshold"),
        ({"success": "reward"}, "'reward' is not a condition"),
        ({"success": "reward >= much"}, "'reward >= much' is not a condition"),
        ({"success": "reward >= nan"}, "is not a condition"),
        ({"success": "terminated or reward > 1"}, "is not a condition"),
        ({"success": "__import__('os').system('true')"}, "is not a condition"),
        ({"success": "info.a.b"}, "is not a condition"),
        ({"env_id": "Blackjack-v1", "action_names": ["Hit", "hit"]}, "action_names"),
        ({"env_id": "Pendulum-v1"}, "Discrete"),
    ],
)
def test_a_bad_option_is_named(config: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        make_env("gymnasium", config)


def push_right(config: dict) -> StepResult:
    """The last step of a CartPole that falls at once."""
    env = make_env("gymnasium", {"env_id": "CartPole-v1", **config})
    env.reset(0)
    while not (result := env.step(1)).is_done:
        pass
    return result


@pytest.mark.parametrize(
    ("config", "success"),
    [
        ({}, 0.0),  # Gymnasium calls 475 steps a success
        ({"success": "reward >= 5"}, 1.0),
        ({"success": "reward >= 50"}, 0.0),
        ({"success": "terminated"}, 1.0),
        ({"success": "terminated and reward < 5"}, 0.0),
        ({"success": "info.is_success"}, 0.0),
    ],
)
def test_a_falling_cart_pole_is_a_success_only_where_the_rule_says_so(config, success):
    assert push_right(config).info["success"] == success


def test_a_method_that_is_overridden_needs_no_rule():
    class Blackjack(GymnasiumEnv):
        def is_success(self, reward, is_terminated, info):
            return reward == 1

    assert Blackjack(GymnasiumConfig(env_id="Blackjack-v1")).actions == {0: "action 0", 1: "action 1"}


def test_the_nearest_name_is_suggested():
    with pytest.raises(ConfigError, match=r"Did you mean.*FrozenLake-v1"):
        make_env("gymnasium", {"env_id": "FrozenLke-v1"})


def test_dictionaries_become_lines():
    env = make_env("gymnasium", {"env_id": "CartPole-v1"})
    seen = {"at": np.array([1, 2]), "near": (np.int64(3), "x"), "deep": {"y": np.float64(0.5)}}
    assert env.to_text(seen) == "at: [1, 2]\nnear: (3, 'x')\ndeep: {'y': 0.5}"


class Parrot(gymnasium.Env):
    """Texts in both directions: the word of the seed must be repeated."""

    observation_space = gymnasium.spaces.Text(30, charset=string.printable)
    action_space = gymnasium.spaces.Text(10, charset="abc")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join(self.np_random.choice(list("abc"), 4))
        return f"Say {self.word}.", {}

    def step(self, action):
        return f"You said {action}.", float(action == self.word), True, False, {}


def make_parrot(config: dict | None = None):
    if "Parrot-v0" not in gymnasium.registry:
        gymnasium.register("Parrot-v0", entry_point=Parrot)
    return make_env("gymnasium_text", {"env_id": "Parrot-v0", "success": "reward >= 1", **(config or {})})


def test_texts_may_be_actions():
    env = make_parrot()
    word = env.reset(3).removeprefix("Say ").rstrip(".")
    assert env.step("xyz").info["action_is_valid"] == 0.0
    result = env.step(word)
    assert (result.observation, result.info["success"]) == (f"You said {word}.", 1.0)
    check_env(make_parrot, seeds=range(3))


def test_discrete_actions_are_no_texts():
    with pytest.raises(ConfigError, match=r"expected a Text action space, got Discrete.*set env_type: gymnasium"):
        make_env("gymnasium_text", {"env_id": "CartPole-v1"})


def test_without_minigrid_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(MissingExtra, match=r"'MiniGrid-Empty-5x5-v0' needs MiniGrid.*\[minigrid\]"):
        make_env("gymnasium", {"env_id": "MiniGrid-Empty-5x5-v0"})


def test_a_core_installation_is_told_the_extra_that_brings_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r"'BabyAI-GoToObj-v0' needs MiniGrid.*\[minigrid\]"):
        make_env("gymnasium", {"env_id": "BabyAI-GoToObj-v0"})


def test_the_nearest_name_is_given_once():
    with pytest.raises(ConfigError) as raised:
        make_env("gymnasium", {"env_id": "CartPol-v1"})
    assert str(raised.value).endswith("Environment `CartPol` doesn't exist. Did you mean CartPole-v1?")


def test_without_gymnasium_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '\.\[gym\]'"):
        make_env("gymnasium")


def test_the_entries_in_the_page_can_be_played():
    page = (EXAMPLE.parents[1] / "docs/environments.md").read_text()
    entries = yaml.safe_load(page.split("## Gymnasium")[1].split("```yaml")[1].split("```")[0])
    assert list(entries) == ["Blackjack", "CartPole"]
    pole = make_env("gymnasium", entries["CartPole"]["env_config"])
    check_env(partial(make_env, "gymnasium", entries["Blackjack"]["env_config"]), seeds=range(2))
    pole.reset(0)
    results = [pole.step(action) for action in [0, 1] * 5]
    assert [result.is_done for result in results] == [False] * 9 + [True]
    assert results[-1].info["success"] == 1.0
