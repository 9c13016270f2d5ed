"""Boards as pictures."""

import pytest

from ragen.env import make_env
from ragen.env.picture import TILE, board, box, disc, plain
from tests.env.helpers import sokoban

RED, BLUE = (255, 0, 0), (0, 0, 255)

CORRIDOR = ("######", "#PX_O#", "######")


def test_the_picture_has_sixteen_pixels_a_cell_and_follows_the_state():
    env = sokoban(*CORRIDOR)
    before = env.render_rgb()
    env.step(4)  # to the right
    after = env.render_rgb()
    assert before.shape == (48, 96, 3) and str(before.dtype) == "uint8"
    changed = (before != after).any(axis=2)
    assert changed[16:32, 16:64].any() and not changed[:16].any() and not changed[:, 64:].any()


@pytest.mark.parametrize("env_type", ["sokoban", "frozen_lake"])
def test_every_kind_of_cell_has_a_tile(env_type):
    env = make_env(env_type)
    assert set(env.tiles()) == set(env.symbols)


def test_shapes_are_painted_on_a_copy():
    tile = plain(RED)
    painted = disc(box(tile, 0, 0, 2, 2, BLUE), 2, BLUE)
    assert (tile == RED).all()
    assert tuple(painted[0, 0]) == BLUE and tuple(painted[7, 7]) == BLUE and tuple(painted[0, 15]) == RED


def test_a_board_is_its_tiles_side_by_side():
    picture = board([[plain(RED), plain(BLUE)]])
    assert picture.shape == (TILE, 2 * TILE, 3)
    assert tuple(picture[0, TILE - 1]) == RED and tuple(picture[0, TILE]) == BLUE
