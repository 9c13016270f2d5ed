"""The solver finds the fewest moves, and knows when a level is lost."""

import pytest

from ragen.env import make_env
from ragen.env.bits import moved, moves_by_action
from ragen.env.sokoban.room import Level
from ragen.env.sokoban.solver import ACTIONS, live_cells, search
from ragen.seeding import Rng
from tests.env.helpers import room


def slow_solution_length(level: Level) -> int | None:
    """Breadth-first search over single moves."""
    layer, seen, num_moves = {(level.boxes, level.player)}, set(), 0
    while layer:
        if any(boxes == level.targets for boxes, _ in layer):
            return num_moves
        seen |= layer
        layer = {after for boxes, player in layer for after in slow_moves(level, boxes, player)} - seen
        num_moves += 1
    return None


def slow_moves(level: Level, boxes: int, player: int):
    for move in moves_by_action(ACTIONS, level.columns).values():
        ahead = moved(player, move)
        behind = moved(ahead, move)
        if ahead & level.floor & ~boxes:
            yield boxes, ahead
        elif ahead & boxes and behind & level.floor & ~boxes:
            yield boxes ^ ahead ^ behind, ahead


@pytest.mark.parametrize("size, num_boxes, count", [(6, 1, 100), (6, 2, 30), (7, 2, 10)])
def test_the_solver_finds_the_fewest_moves_from_any_state(size: int, num_boxes: int, count: int):
    rng = Rng("states")
    for seed in range(count):
        env = make_env("sokoban", {"dim_x": size, "dim_y": size, "num_boxes": num_boxes})
        env.reset(seed)
        for _ in range(rng.below(6)):  # wander off, perhaps into a dead end
            if not env.is_done:
                env.step(1 + rng.below(4))
        solution = env.solve()
        assert (None if solution is None else len(solution)) == slow_solution_length(env.current())


def test_a_box_in_a_corner_is_lost():
    level = room("######", "#X_P_#", "#___O#", "######")
    assert search(level).actions is None


def test_live_cells_are_those_from_which_a_target_can_be_reached():
    level = room("######", "#PX_O#", "######")
    # Pushed to the right only, with the player behind it: from columns 2, 3 and the target itself.
    assert live_cells(level) == sum(1 << (6 + col) for col in (2, 3, 4))


def test_the_solver_gives_up_at_its_bound():
    level = room("########", "#P_____#", "#_X____#", "#____X_#", "#___O_O#", "########")
    assert search(level).actions is not None
    assert search(level, max_states=3).actions is None
