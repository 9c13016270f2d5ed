"""The player of the reference line."""

from ragen.env.game_2048.board import ACTIONS
from ragen.env.game_2048.player import best_move, row_worth


def test_rows_in_order_are_worth_more():
    assert row_worth((8, 4, 2)) == row_worth((2, 4, 8)) > row_worth((4, 8, 2))


def test_a_merge_that_saves_the_game_is_found():
    # Only the twos in the last row can move: Left and Right are the ways to go on.
    assert ACTIONS[best_move(((4, 8, 16), (8, 16, 32), (2, 2, 64)))] in ("Left", "Right")


def test_a_full_board_without_equal_neighbours_has_no_move():
    assert best_move(((2, 4), (4, 2))) is None
