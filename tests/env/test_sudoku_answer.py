"""Answers to a Sudoku are read in the spellings that people use, and nothing else is."""

import pytest

from ragen.env.sudoku.answer import LONGEST, Placement, read_placements


@pytest.mark.parametrize(
    "text",
    [
        "r1c2=3",
        " R1C2 = 3.",
        "row 1 col 2 = 3",
        "Row 1, column 2: 3",
        "r1, c2 = 3\n",
        "(r1c2=3)".strip("()"),
    ],
)
def test_one_digit(text):
    assert read_placements(text) == [Placement(1, 2, 3)]


@pytest.mark.parametrize("between", [" ", ", ", "; ", "\n", " || ", " and ", ".\n"])
def test_several_digits_keep_their_order(between):
    assert read_placements(f"r1c2=3{between}r4c4=1") == [Placement(1, 2, 3), Placement(4, 4, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "3",
        "r1c2",
        "c2r1=3",
        "I write r1c2=3",
        "r1c2=3 perhaps",
        "r1c2=3x",
        "r1c2=-3",
        "r١c2=3",
        "r1c2=1234",
        "r1c2=3 " * LONGEST,
    ],
)
def test_anything_else_is_no_answer(text):
    assert read_placements(text) is None


def test_numbers_out_of_range_are_left_to_the_board():
    assert read_placements("r0c17=99") == [Placement(0, 17, 99)]
