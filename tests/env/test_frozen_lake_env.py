"""FrozenLake: moves, slips, texts and options."""

from collections import Counter

import pytest

from ragen.env import make_env
from ragen.env.frozen_lake.env import FrozenLakeConfig, FrozenLakeEnv
from ragen.errors import ConfigError
from tests.env.helpers import lake

LEFT, DOWN, RIGHT, UP = 1, 2, 3, 4


def on(*rows: str, **options) -> FrozenLakeEnv:
    """A lake drawn as text, without slipping unless the options say otherwise."""
    env = FrozenLakeEnv(FrozenLakeConfig(**{"is_slippery": False, "size": len(rows), **options}))
    env.load(lake(*rows))
    return env


def test_the_four_actions_go_their_way():
    seen = {LEFT: "___P____G", DOWN: "_______PG", RIGHT: "_____P__G", UP: "_P______G"}
    for action, cells in seen.items():
        env = on("___", "_P_", "__G")
        assert env.step(action).observation.replace("\n", "") == cells


def test_the_goal_gives_one_and_ends_the_episode():
    env = on("P_", "_G")
    first, last = env.step(RIGHT), env.step(DOWN)
    assert (first.reward, first.is_done, first.info["success"]) == (0.0, False, 0.0)
    assert (last.reward, last.is_done, last.info["success"]) == (1.0, True, 1.0)
    assert last.observation == "__\n_√"


def test_a_hole_gives_nothing_and_ends_the_episode():
    env = on("PO", "_G")
    result = env.step(RIGHT)
    assert (result.reward, result.is_done, result.info["success"]) == (0.0, True, 0.0)
    assert result.observation == "_X\n_G"
    assert env.solve() is None and env.hint() == ""


@pytest.mark.parametrize(
    "rows, action", [(("P_", "_G"), UP), (("P_", "_G"), LEFT), (("G_", "_P"), DOWN), (("GP", "__"), RIGHT)]
)
def test_off_the_board_the_player_stays(rows: tuple[str, ...], action: int):
    env = on(*rows)
    result = env.step(action)
    assert (result.observation, result.reward, result.is_done) == ("\n".join(rows), 0.0, False)
    assert (result.info["action_is_effective"], result.info["action_is_valid"]) == (0.0, 1.0)


def test_an_id_that_is_no_action_leaves_the_state():
    env = on("P_", "_G")
    result = env.step(0)
    assert (result.observation, result.info["action_is_valid"]) == ("P_\n_G", 0.0)


def where_a_move_goes(action: int, success_rate: float, count: int) -> Counter[str]:
    env = make_env("frozen_lake", {"size": 3, "success_rate": success_rate})
    ends: Counter[str] = Counter()
    for member in range(count):
        env.reset(0, member)
        env.load(lake("___", "_P_", "__G"))
        observation = env.step(action).observation.replace("\n", "")
        ends[{1: "up", 3: "left", 5: "right", 7: "down"}[observation.index("P")]] += 1
    return ends


def test_a_slip_goes_to_either_side_equally_often_and_never_back():
    ends = where_a_move_goes(DOWN, 0.8, 3000)
    assert ends["up"] == 0
    assert ends["down"] / 3000 == pytest.approx(0.8, abs=0.03)
    assert ends["left"] / 3000 == pytest.approx(0.1, abs=0.025)
    assert ends["right"] / 3000 == pytest.approx(0.1, abs=0.025)


def test_success_rate_one_never_slips():
    assert where_a_move_goes(LEFT, 1.0, 200) == {"left": 200}


def test_a_group_shares_the_lake_but_not_the_slips():
    env = make_env("frozen_lake", {"size": 8, "p": 1.0, "success_rate": 0.5})
    firsts, walks = set(), set()
    for member in range(16):
        firsts.add(env.reset(3, member))
        walk = []
        for _ in range(6):
            if not env.is_done:
                walk.append(env.step(DOWN).observation)
        walks.add(tuple(walk))
    assert len(firsts) == 1
    assert len(walks) > 4


def test_a_member_slips_the_same_way_again():
    env = make_env("frozen_lake", {"size": 8, "p": 1.0})

    def walk() -> list[str]:
        env.reset(3, 5)
        return [env.step(action).observation for action in (UP, LEFT, UP) if not env.is_done]

    assert walk() == walk()


def test_grid_shows_player_ice_holes_and_goal():
    assert on("P_O", "___", "O_G").render() == "P_O\n___\nO_G"


def test_coord_lists_start_goal_player_and_holes():
    env = on("P_O", "___", "O_G", observation_format="coord")
    env.step(DOWN)
    assert (
        env.render() == "Board: 3 rows, 3 columns\nStart: (0, 0)\nGoal: (2, 2)\nPlayer: (1, 0)\nHoles: (0, 2), (2, 0)"
    )


@pytest.mark.parametrize(
    "rows, line", [(("PO", "_G"), "Player in hole: (0, 1)"), (("PG", "__"), "Player on goal: (0, 1)")]
)
def test_coord_says_where_the_player_ended(rows: tuple[str, ...], line: str):
    env = on(*rows, observation_format="coord")
    assert line in env.step(RIGHT).observation.splitlines()


def test_a_lake_without_holes_has_no_line_for_them():
    assert "Holes" not in on("P_", "_G", observation_format="coord").render()


def test_grid_coord_is_the_coordinates_and_then_the_grid():
    env = on("P_", "_G", observation_format="grid_coord")
    assert env.render() == "Board: 2 rows, 2 columns\nStart: (0, 0)\nGoal: (1, 1)\nPlayer: (0, 0)\nGrid:\nP_\n_G"


def test_notes_follow_the_configuration():
    notes = make_env("frozen_lake", {"size": 5, "observation_format": "grid_coord", "symbols": {"hole": "H"}}).notes()
    assert "5 rows and 5 columns" in notes and "H hole" in notes
    assert "(row, col), counted from 0" in notes and "probability 0.8" in notes
    assert "slippery" not in make_env("frozen_lake", {"is_slippery": False}).notes()


def test_the_hint_points_to_the_goal_and_names_holes_beside_the_player():
    assert on("P__", "___", "_G_").hint() == "Goal down 2, right 1."
    assert on("G_P", "___", "___").hint() == "Goal left 2."
    assert on("GOP", "__O", "___").hint() == "Goal left 2. Hole left, down."


def test_the_solver_takes_a_shortest_way_around_holes_and_replans():
    env = on("POG", "___", "___")
    assert env.solve() == [DOWN, RIGHT, RIGHT, UP]
    env.step(DOWN)
    env.step(DOWN)  # as if it had slipped
    assert len(env.solve() or []) == 4


@pytest.mark.parametrize(
    "options, named",
    [
        ({"size": 1}, "frozen_lake.size"),
        ({"p": 0.0}, "frozen_lake.p"),
        ({"p": 1.5}, "frozen_lake.p"),
        ({"p": float("nan")}, "frozen_lake.p"),
        ({"success_rate": 0.0}, "frozen_lake.success_rate"),
        ({"success_rate": 1.1}, "frozen_lake.success_rate"),
        ({"observation_format": "text"}, "frozen_lake.observation_format"),
        ({"symbols": {"hole": "G"}}, "frozen_lake.symbols"),
    ],
)
def test_a_bad_option_is_named(options: dict, named: str):
    with pytest.raises(ConfigError, match=f"{named}(: | is )"):
        make_env("frozen_lake", options)
