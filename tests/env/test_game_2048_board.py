"""Tiles slide and merge by the rules of 2048."""

import pytest

from ragen.env.game_2048.board import DOWN, LEFT, RIGHT, UP, add_tile, empty_cells, moves, slide, slide_row
from ragen.seeding import Rng


@pytest.mark.parametrize(
    ("row", "slid", "merged"),
    [
        ((0, 0, 0, 0), (0, 0, 0, 0), ()),
        ((0, 2, 0, 4), (2, 4, 0, 0), ()),
        ((2, 0, 0, 2), (4, 0, 0, 0), (4,)),
        ((2, 2, 2, 0), (4, 2, 0, 0), (4,)),
        ((2, 2, 2, 2), (4, 4, 0, 0), (4, 4)),
        ((4, 2, 2, 0), (4, 4, 0, 0), (4,)),  # a tile that came about does not merge again
        ((2, 2, 4, 8), (4, 4, 8, 0), (4,)),
    ],
)
def test_a_row_slides_to_the_left(row, slid, merged):
    assert slide_row(row) == (slid, merged)


def test_the_four_directions():
    board = ((2, 0), (2, 4))
    assert slide(board, UP) == (((4, 4), (0, 0)), (4,))
    assert slide(board, DOWN) == (((0, 0), (4, 4)), (4,))
    assert slide(board, LEFT) == (((2, 0), (2, 4)), ())
    assert slide(board, RIGHT) == (((0, 2), (2, 4)), ())


def test_only_actions_that_move_a_tile_are_moves():
    assert set(moves(((2, 0), (2, 4)))) == {UP, DOWN, RIGHT}
    assert moves(((2, 4), (4, 2))) == {}


def test_a_new_tile_is_a_two_or_now_and_then_a_four_on_an_empty_cell():
    board = ((2, 0, 8), (0, 16, 0), (4, 4, 4))
    new = [add_tile(board, Rng(draw, "test")) for draw in range(2000)]
    changes = [(cell, tile[cell[0]][cell[1]]) for tile in new for cell in empty_cells(board) if tile[cell[0]][cell[1]]]
    assert len(changes) == 2000 and {cell for cell, _ in changes} == {(0, 1), (1, 0), (1, 2)}
    assert {tile for _, tile in changes} == {2, 4}
    assert 0.07 < sum(tile == 4 for _, tile in changes) / 2000 < 0.13
