"""Sokoban levels: the same for a seed for ever, solvable, and as hard as they can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.env import make_env
from ragen.env.bits import moves
from ragen.env.sokoban.room import Level, generate_level, paint_floor, pull_boxes
from ragen.env.sokoban.solver import search
from ragen.seeding import Rng
from tests.env.helpers import room, sokoban

SIMPLE = {"num_boxes": 1}


LARGER = {"dim_x": 8, "dim_y": 8, "num_boxes": 2, "search_depth": 10}


GOLDEN = [
    (SIMPLE, 0, "###### ###__# #PX__# #___O# #_#__# ######"),
    (SIMPLE, 1, "###### #__### #_#### #_##P# #_OX_# ######"),
    (SIMPLE, 2025, "###### #_P### #X_### #__### #O___# ######"),
    (LARGER, 0, "######## #####_## #####_## ###O#_## #PX____# #_X____# #__#O__# ########"),
    (LARGER, 123, "######## ##_____# ##_P_OO# ###_X__# ###__X_# ###____# ####___# ########"),
    ({}, 7, "###### #_P_O# #_XX_# #___X# ##OO_# ######"),
]


@pytest.mark.parametrize("options, seed, rows", GOLDEN)
def test_a_seed_names_the_same_level_for_ever(options: dict, seed: int, rows: str):
    assert make_env("sokoban", options).reset(seed).split() == rows.split()


def check_level(level: Level, num_boxes: int) -> None:
    assert level.boxes.bit_count() == level.targets.bit_count() == num_boxes
    assert not level.boxes & level.targets  # never handed out solved, not even in part
    assert level.player.bit_count() == 1 and level.player & level.floor & ~level.boxes
    assert (level.boxes | level.targets) & ~level.floor == 0


def play(level: Level, solution: tuple[int, ...]) -> bool:
    """Whether the actions end, and only end, on the solved level, by the rules of the environment."""
    env = sokoban(*["#" * level.columns] * level.rows, max_steps=1000)
    env.load(level)
    results = [env.step(action) for action in solution]
    return results[-1].info["success"] == 1.0 and sum(result.is_done for result in results) == 1


def test_three_thousand_simple_levels_can_be_solved():
    for seed in range(3000):
        level = generate_level(6, 6, num_boxes=1, search_depth=300, seed=seed)
        check_level(level, 1)
        assert search(level).actions


def test_larger_levels_can_be_solved_in_the_search_depth_and_three_strolling_steps():
    for seed in range(300):
        level = generate_level(8, 8, num_boxes=2, search_depth=10, seed=seed)
        check_level(level, 2)
        solution = search(level).actions
        assert solution and len(solution) <= 13
        assert play(level, solution)


@given(
    rows=st.integers(4, 9),
    columns=st.integers(5, 9),
    num_boxes=st.integers(1, 2),
    depth=st.integers(8, 60),
    seed=st.integers(-(2**70), 2**70),
)
def test_any_shape_and_any_seed_gives_a_solvable_level(rows, columns, num_boxes, depth, seed):
    level = generate_level(rows, columns, num_boxes=num_boxes, search_depth=depth, seed=seed)
    check_level(level, num_boxes)
    solution = search(level).actions
    assert solution and len(solution) <= depth + 3
    assert play(level, solution)


def test_seeds_give_different_levels():
    levels = {generate_level(6, 6, num_boxes=1, search_depth=300, seed=seed) for seed in range(500)}
    assert len(levels) > 450  # small rooms repeat now and then


def test_rooms_are_walled_in():
    for seed in range(50):
        floor = paint_floor(5, 7, Rng(seed))
        outer = sum(1 << (r * 7 + c) for r in range(5) for c in range(7) if r in (0, 4) or c in (0, 6))
        assert floor and not floor & outer


def slow_hardest_distance(floor: int, target: int, player: int, columns: int) -> int:
    """The farthest a single box can be pulled, by trying every step and every pull."""
    queue, seen, best = [(target, player)], set(), 0
    while queue:
        box, player = state = queue.pop()
        if state in seen:
            continue
        seen.add(state)
        cells = [divmod(cell.bit_length() - 1, columns) for cell in (box, target)]
        best = max(best, sum(abs(a - b) for a, b in zip(*cells)))
        for left, right in moves(columns):
            step, behind = player << left >> right, player << right >> left
            if step & floor & ~box:
                queue.append((box, step))
                if behind == box:
                    queue.append((player, step))
    return best


def test_the_pulled_box_is_as_far_away_as_it_can_be():
    for seed in range(100):
        rng = Rng(seed)
        floor = paint_floor(6, 6, rng)
        player, target = rng.sample([1 << i for i in range(36) if floor >> i & 1], 2)
        hardest, _ = pull_boxes(floor, [target], player, rows=6, columns=6, search_depth=300)
        best = max((distance for _, _, distance in hardest), default=0)
        assert best == slow_hardest_distance(floor, target, player, 6)


def test_both_boxes_leave_their_targets():
    level = room("#######", "#_____#", "#_√_√_#", "#__P__#", "#_____#", "#######")
    targets = [1 << 16, 1 << 18]
    hardest, _ = pull_boxes(level.floor, targets, level.player, rows=6, columns=7, search_depth=300)
    assert hardest and all(not boxes & sum(targets) for boxes, _, _ in hardest)


def test_a_search_too_short_to_reach_the_box_finds_nothing():
    level = room("########", "#√____P#", "########")
    args = {"rows": 3, "columns": 8}
    target = 1 << 9
    # Four steps to stand beside the box, the fifth pulls it.
    assert pull_boxes(level.floor, [target], level.player, search_depth=4, **args)[0] == []
    assert pull_boxes(level.floor, [target], level.player, search_depth=5, **args)[0] == [(1 << 10, 1 << 11, 1)]
