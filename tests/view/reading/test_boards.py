"""Observations as boards."""

import pytest

from ragen.env.registry import make_env
from ragen.view.reading.boards import frame_of
from tests.view.runs import episode, turn


@pytest.mark.parametrize("form", ["grid", "grid_coord"])
@pytest.mark.parametrize("env_type", ["sokoban", "frozen_lake"])
def test_a_board_has_a_cell_for_every_symbol(env_type, form):
    env = make_env(env_type, {"observation_format": form} | ({"num_boxes": 1} if env_type == "sokoban" else {}))
    observation = env.reset(3)
    frame = frame_of(episode(env_type=env_type), observation, {})
    assert frame["rows"] == [[env.kind(cell) for cell in row] for row in env.cells]


@pytest.mark.parametrize("env_type", ["sokoban", "frozen_lake"])
def test_coordinates_alone_make_a_board_without_walls(env_type):
    env = make_env(env_type, {"observation_format": "coord"})
    observation = env.reset(3)
    for action in (None, *env.actions):
        observation = observation if action is None else env.step(action).observation
        shown = [["floor" if kind == "wall" else kind for kind in map(env.kind, row)] for row in env.cells]
        assert frame_of(episode(env_type=env_type), observation, {}) == {"kind": env_type, "rows": shown}
        if env.is_done:
            return


@pytest.mark.parametrize(
    "text", ["Board: 999 rows, 1 columns\nPlayer: (0, 0)", "Board: 0 rows, 0 columns\nGoal: (1, 1)"]
)
def test_a_board_that_is_too_large_or_empty_stays_text(text):
    assert frame_of(episode(), text, {}) == {"kind": "text", "text": text}


def test_cells_outside_a_board_and_unknown_names_are_left_out():
    text = "Board: 1 rows, 2 columns\nGoal: (0, 1), (7, 7)\nDragons: (0, 0)\n<b>: (0, 0)"
    assert frame_of(episode(), text, {})["rows"] == [["frozen", "goal"]]


def test_symbols_are_those_of_the_run():
    symbols = {"player": "A", "frozen": ".", "goal": "@"}
    settings = {"custom_envs": {"FrozenLake": {"env_config": {"symbols": symbols}}}}
    assert frame_of(episode(), "A.\n.@", settings)["rows"] == [["player", "frozen"], ["frozen", "goal"]]
    assert frame_of(episode(), "P.\n.@", settings) == {"kind": "text", "text": "P.\n.@"}


@pytest.mark.parametrize("observation", ["", "\n", "P_\n_", "P" * 65, "P\n" * 65 + "P", "Player: (1, 2)", "<b>"])
def test_what_shows_no_board_stays_text(observation):
    assert frame_of(episode(), observation, {}) == {"kind": "text", "text": observation}


@pytest.mark.parametrize("env_type", ["bandit", "two_armed_bandit"])
def test_a_bandit_shows_its_arms_and_the_pull(env_type):
    env = make_env(env_type)
    first = env.reset(1)
    names = list(env.actions.values())
    played = episode(env_type=env_type, turns=[turn(observation=first)])
    assert frame_of(played, first, {}) == {"kind": "bandit", "arms": names, "pulled": None, "points": None}
    pulled = env.step(next(iter(env.actions)))
    frame = frame_of(played, pulled.observation, {})
    assert (frame["pulled"], float(frame["points"])) == (names[0], pytest.approx(pulled.reward, abs=0.01))


def test_broken_settings_break_nothing():
    for settings in ({"custom_envs": 3}, {"custom_envs": {"FrozenLake": {"env_config": {"symbols": {"player": [1]}}}}}):
        assert frame_of(episode(), "_G", settings)["kind"] == "frozen_lake"


@pytest.mark.parametrize("size", [4, 9])
def test_a_sudoku_shows_its_digits_and_what_was_refused(size):
    env = make_env("sudoku", {"size": size})
    first = env.reset(2)
    cells = [str(digit or "") for digit in env.board]
    rows = [cells[start : start + size] for start in range(0, size * size, size)]
    assert frame_of(episode(env_type="sudoku"), first, {}) == {"kind": "sudoku", "values": rows, "said": ""}
    refused = env.step("hm").observation
    frame = frame_of(episode(env_type="sudoku"), refused, {})
    assert (frame["values"], frame["said"]) == (rows, "Your last answer was refused: write digits as r1c2=3.")


def test_2048_shows_its_tiles():
    env = make_env("game_2048", {"size": 3})
    env.load(((2, 0, 128), (0, 16, 0), (4, 0, 0)))
    frame = frame_of(episode(env_type="game_2048"), env.render(), {})
    assert frame["values"] == [["2", "", "128"], ["", "16", ""], ["4", "", ""]] and frame["said"] == ""


@pytest.mark.parametrize("text", ["", "2 4", "r1: 1 2\nr2: 3", "1 2 3\n4 5 6", "<b> 2\n2 2", "9" * 50 + " 1\n1 1"])
def test_numbers_that_make_no_board_stay_text(text):
    assert frame_of(episode(env_type="game_2048"), text, {}) == {"kind": "text", "text": text}


def test_sokoban_levels_of_a_file_are_drawn_in_their_size():
    env = make_env("sokoban", {"levels_file": "mixed.xsb", "observation_format": "grid_coord"})
    sizes = set()
    for seed in range(10):
        frame = frame_of(episode(env_type="sokoban"), env.reset(seed), {})
        assert frame["rows"] == [[env.kind(cell) for cell in row] for row in env.cells]
        sizes.add((len(frame["rows"]), len(frame["rows"][0])))
    assert len(sizes) > 2
