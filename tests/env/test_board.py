"""Boards as text: kinds of cells, coordinates and notes."""

from ragen.env import make_env
from ragen.env.board import offset_in_words
from ragen.env.sokoban.env import SokobanSymbols
from tests.env.helpers import sokoban

CORRIDOR = ("######", "#PX_O#", "######")


def test_several_members_of_a_kind_share_a_line():
    env = sokoban("######", "#OPXO#", "#__X_#", "######", observation_format="coord")
    assert env.render() == "Board: 4 rows, 6 columns\nTargets: (1, 1), (1, 4)\nBoxes: (1, 3), (2, 3)\nPlayer: (1, 2)"


def test_symbols_of_the_config_reach_the_grid_and_the_notes():
    symbols = {"wall": "W", "floor": ".", "target": "G", "box_on_target": "C", "box": "B", "player": "A"}
    env = sokoban(*CORRIDOR, symbols=SokobanSymbols(**symbols, player_on_target="@"))
    assert env.render() == "WWWWWW\nWAB.GW\nWWWWWW"
    assert env.notes() == (
        "The board has 3 rows and 6 columns. Symbols: W wall, . floor, G target, C box on target, B box, A player, "
        "@ player on target."
    )


def test_coordinates_are_explained_only_where_they_are_shown():
    assert "Coordinates" not in make_env("sokoban").notes()
    notes = make_env("sokoban", {"observation_format": "coord"}).notes()
    assert "(row, col), counted from 0" in notes and "Symbols" not in notes


def test_a_way_in_words_goes_down_first():
    assert offset_in_words((0, 1), (2, 0)) == "down 2, left 1"
    assert offset_in_words((1, 1), (1, 3)) == "right 2"
    assert offset_in_words((1, 1), (1, 1)) == "here"
