"""MiniGrid's boards in words: `make test-adapters`."""

from functools import partial

import pytest

pytest.importorskip("minigrid", reason="needs MiniGrid; run: make test-adapters")

import gymnasium

from ragen.env import check_env, make_env
from ragen.errors import ConfigError, MissingExtra

pytestmark = pytest.mark.adapters
IDS = sorted(name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-")))
WFC = {name for name in IDS if name.startswith("MiniGrid-WFC-")}
"""These need MiniGrid's own extra `wfc`."""


@pytest.mark.parametrize("view", ["agent", "full"])
@pytest.mark.parametrize(
    "env_id", ["MiniGrid-DoorKey-6x6-v0", "BabyAI-GoToRedBall-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"]
)
def test_a_sample_keeps_every_promise(env_id: str, view: str):
    check_env(partial(make_env, "gymnasium", {"env_id": env_id, "view": view}), seeds=range(2), has_noise=True)


@pytest.mark.filterwarnings("ignore:.*is out of date.*:DeprecationWarning")
def test_every_id_starts_and_moves():
    assert len(IDS) == 178 and len(WFC) == 6
    for env_id in sorted(set(IDS) - WFC):
        env = make_env("gymnasium", {"env_id": env_id})
        assert env.reset(1).startswith("Mission: ")
        assert env.step(1).info["action_is_valid"] == 1.0
        env.close()


def test_ids_that_need_more_say_so():
    with pytest.raises(MissingExtra, match=r"minigrid\[wfc\]"):
        make_env("gymnasium", {"env_id": min(WFC)})


def test_the_whole_board():
    env = make_env("gymnasium", {"env_id": "MiniGrid-DoorKey-6x6-v0", "view": "full"})
    assert env.reset(1) == (
        "Mission: use the key to open the door and then get to the goal.\n"
        "You carry nothing.\n"
        "######\n"
        "#KD..#\n"
        "#.#..#\n"
        "#.#..#\n"
        "#^#.G#\n"
        "######\n"
        "K at row 1, column 1: yellow key\n"
        "D at row 1, column 2: yellow door, locked\n"
        "G at row 4, column 4: green goal"
    )
    assert env.actions[2] == "Forward"


def test_a_level_is_solved():
    env = make_env("gymnasium", {"env_id": "MiniGrid-DoorKey-6x6-v0", "view": "full"})
    env.reset(1)
    names = {name: action for action, name in env.actions.items()}
    moves = "Forward Forward Pickup Forward Right Forward"
    results = [env.step(names[move]) for move in moves.split()]
    assert "You carry: yellow key." in results[2].observation
    assert results[5].observation.count("locked") == 1  # it stands in front of the door
    moves = "Toggle Forward Forward Right Forward Forward Forward Left Forward"
    results = [env.step(names[move]) for move in moves.split()]
    assert results[-1].terminated and results[-1].reward > 0 and results[-1].info["success"] == 1.0


def test_the_agent_sees_a_part_and_the_level_is_the_whole():
    env = make_env("gymnasium", {"env_id": "MiniGrid-DoorKey-6x6-v0"})
    text = env.reset(1)
    assert "?" in text and "You look up." in text
    assert "G at row 4" in env.level_content() and "G at" not in text
    assert "always look up" in env.notes()


def test_a_wrong_id_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean.*MiniGrid-DoorKey"):
        make_env("gymnasium", {"env_id": "MiniGrid-DorKey-6x6-v0"})
