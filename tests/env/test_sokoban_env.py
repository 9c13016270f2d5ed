"""Sokoban: moves, rewards, texts and options."""

import pytest

from ragen.env import make_env
from ragen.errors import ConfigError
from tests.env.helpers import sokoban

UP, DOWN, LEFT, RIGHT = 1, 2, 3, 4


CORRIDOR = ("######", "#PX_O#", "######")


def test_the_finishing_push_of_a_one_box_level_gives_ten_point_nine():
    env = sokoban(*CORRIDOR)
    first, last = env.step(RIGHT), env.step(RIGHT)
    assert (first.reward, first.is_done, first.info["success"]) == (-0.1, False, 0.0)
    assert last.reward == pytest.approx(10.9)
    assert (last.is_done, last.info["success"]) == (True, 1.0)


def test_an_action_costs_what_step_reward_says():
    env = sokoban(*CORRIDOR, step_reward=0.0)
    assert [env.step(action).reward for action in (LEFT, RIGHT, RIGHT)] == [0.0, 0.0, 11.0]
    assert sokoban(*CORRIDOR, step_reward=-0.5).step(LEFT).reward == -0.5


def test_a_box_earns_one_when_it_arrives_and_loses_one_when_it_leaves():
    env = sokoban("#######", "#PXO__#", "#_XO__#", "#######")
    assert env.step(RIGHT).reward == pytest.approx(0.9)
    assert env.render() == "#######\n#_P√__#\n#_XO__#\n#######"
    assert env.step(RIGHT).reward == pytest.approx(-1.1)
    assert env.render() == "#######\n#__SX_#\n#_XO__#\n#######"


def test_a_box_that_slides_from_target_to_target_costs_only_the_step():
    env = sokoban("#######", "#P√OX_#", "#######")
    assert env.step(RIGHT).reward == pytest.approx(-0.1)


@pytest.mark.parametrize("row", ["#_O__P#", "#_O_PX#", "#OOPXX#"])
def test_a_blocked_player_stays_and_pays(row: str):
    env = sokoban("#######", row, "#######")
    result = env.step(RIGHT)
    assert result.observation.splitlines()[1] == row
    assert (result.reward, result.info["action_is_effective"], result.info["action_is_valid"]) == (-0.1, 0.0, 1.0)


def test_the_four_actions_go_their_way():
    for action, seen in {
        UP: "_P_\n___\n___",
        DOWN: "___\n___\n_P_",
        LEFT: "___\nP__\n___",
        RIGHT: "___\n__P\n___",
    }.items():
        env = sokoban("#######", "#___XO#", "#_P___#", "#_____#", "#######")
        rows = env.step(action).observation.splitlines()
        inner = "\n".join(row[1:4] for row in rows[1:4])
        assert inner.replace("X", "_") == seen


def test_an_id_that_is_no_action_costs_a_step_and_is_invalid():
    env = sokoban(*CORRIDOR)
    result = env.step(0)
    assert (result.reward, result.info["action_is_valid"], result.info["action_is_effective"]) == (-0.1, 0.0, 0.0)


def test_the_episode_ends_after_max_steps_without_success():
    env = sokoban(*CORRIDOR, max_steps=3)
    results = [env.step(LEFT) for _ in range(3)]
    assert [result.is_done for result in results] == [False, False, True]
    assert results[-1].info["success"] == 0.0


def test_a_finished_episode_takes_no_more_steps():
    env = sokoban(*CORRIDOR, max_steps=1)
    env.step(LEFT)
    with pytest.raises(AssertionError, match="call reset"):
        env.step(LEFT)


def test_grid_is_rows_of_symbols_without_separators():
    assert sokoban(*CORRIDOR).render() == "######\n#PX_O#\n######"


def test_coord_lists_each_kind_with_zero_based_cells_and_omits_empty_kinds():
    env = sokoban("#######", "#OX√__#", "#_S___#", "#######", observation_format="coord")
    assert env.render() == (
        "Board: 4 rows, 7 columns\nTargets: (1, 1)\nBoxes: (1, 2)\nBoxes on target: (1, 3)\nPlayer on target: (2, 2)"
    )


def test_grid_coord_is_the_coordinates_and_then_the_grid():
    env = sokoban(*CORRIDOR, observation_format="grid_coord")
    assert env.render() == (
        "Board: 3 rows, 6 columns\nTargets: (1, 4)\nBoxes: (1, 2)\nPlayer: (1, 1)\nGrid:\n######\n#PX_O#\n######"
    )


def test_the_members_of_a_group_share_the_level():
    env = make_env("sokoban", {"num_boxes": 1})
    assert len({env.reset(4, member) for member in range(8)}) == 1


def test_the_hint_tells_where_the_box_is_and_where_it_goes():
    assert sokoban(*CORRIDOR).hint() == "Box right 1. Target right 2."
    env = sokoban("######", "#P___#", "#__X_#", "#____#", "#__O_#", "######")
    assert env.hint() == "Box down 1, right 2. Target down 2."


def test_the_hint_of_a_lost_or_solved_level_is_empty():
    assert sokoban("######", "#XP_O#", "######").hint() == ""
    env = sokoban("#####", "#PXO#", "#####")
    env.step(RIGHT)
    assert env.hint() == "" and env.solve() == []


@pytest.mark.parametrize(
    "options, named",
    [
        ({"dim_x": 2}, "sokoban.dim_x"),
        ({"dim_y": 1000}, "sokoban.dim_y"),
        ({"num_boxes": 0}, "sokoban.num_boxes"),
        ({"num_boxes": 15}, "sokoban.num_boxes"),
        ({"max_steps": 0}, "sokoban.max_steps"),
        ({"step_reward": 0.1}, "sokoban.step_reward"),
        ({"step_reward": float("nan")}, "sokoban.step_reward"),
        ({"search_depth": 2}, "sokoban.search_depth"),
        ({"observation_format": "picture"}, "sokoban.observation_format"),
        ({"symbols": {"box": "BB"}}, "sokoban.symbols.box"),
        ({"symbols": {"floor": " "}}, "sokoban.symbols.floor"),
        ({"symbols": {"floor": "#"}}, "sokoban.symbols"),
    ],
)
def test_a_bad_option_is_named(options: dict, named: str):
    with pytest.raises(ConfigError, match=f"{named}(: | is )"):
        make_env("sokoban", options)


def test_a_room_too_crowded_for_any_level_is_refused_when_it_is_made():
    with pytest.raises(ConfigError, match="fewer boxes"):
        make_env("sokoban", {"dim_x": 5, "dim_y": 5, "num_boxes": 6})
