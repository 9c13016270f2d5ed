"""Sudoku puzzles are the same everywhere, have one solution, and every digit can be told."""

from hashlib import blake2b

import pytest

from ragen.env.sudoku.puzzle import Puzzle, candidates, complete, deduce, draw_puzzle, units
from ragen.errors import ConfigError


def count_solutions(board: tuple[int, ...], size: int) -> int:
    """By plain search over the cells in their order: the slow, obvious twin of `complete`."""
    if 0 not in board:
        return 1
    cell = board.index(0)
    row, col = divmod(cell, size)
    box = 2 if size == 4 else 3
    seen = {board[row * size + c] for c in range(size)} | {board[r * size + col] for r in range(size)}
    seen |= {
        board[r * size + c]
        for r in range(row // box * box, row // box * box + box)
        for c in range(col // box * box, col // box * box + box)
    }
    left = [digit for digit in range(1, size + 1) if digit not in seen]
    return sum(count_solutions((*board[:cell], digit, *board[cell + 1 :]), size) for digit in left)


def is_solution(board: tuple[int, ...], size: int) -> bool:
    return all({board[cell] for cell in unit} == set(range(1, size + 1)) for unit in units(size).cells)


def test_seeds_name_the_same_puzzles_on_every_machine():
    first = ["".join(map(str, draw_puzzle(4, num_givens=8, seed=seed).givens)) for seed in range(3)]
    assert first == ["3014400000411002", "3104201013004000", "1023320000102004"]
    text = "".join("".join(map(str, draw_puzzle(9, num_givens=30, seed=seed).givens)) for seed in range(10))
    assert blake2b(text.encode(), digest_size=8).hexdigest() == "641a15722d221933"


@pytest.mark.parametrize(("size", "num_givens", "count"), [(4, 5, 40), (4, 8, 40), (9, 40, 5), (9, 26, 3)])
def test_a_puzzle_has_just_one_solution(size, num_givens, count):
    for seed in range(count):
        puzzle = draw_puzzle(size, num_givens=num_givens, seed=seed)
        assert len(puzzle.givens) - puzzle.givens.count(0) == num_givens
        assert is_solution(puzzle.solution, size) and complete(puzzle.givens, size) == puzzle.solution
        if size == 4:
            assert count_solutions(puzzle.givens, size) == 1


def test_a_board_without_a_solution_is_known_as_such():
    assert complete((1, 2, 3, 0, 0, 0, 0, 4, *(0,) * 8), 4) is None
    assert count_solutions((0,) * 16, 4) == 288


def test_candidates_are_what_row_column_and_box_leave():
    #   1 2 . .     r1c3: not 1, 2 (row), not 4 (column)
    board = (1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0)
    assert candidates(board, 2, 4) == [3] and candidates(board, 3, 4) == [3, 4]


@pytest.mark.parametrize(
    ("givens", "cell", "digit", "reason"),
    [
        ((1, 2, 3, 0, *(0,) * 12), 3, 4, "only 4 fits"),
        # The 1 of row 1 must stand in its third cell: the columns 1 and 2 share a box with a 1, column 4 has one.
        ((0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 2, 1, "1 fits nowhere else in row 1"),
    ],
)
def test_reasons_are_told(givens, cell, digit, reason):
    found = deduce(givens, Puzzle(4, givens, (0,) * 16))
    assert (found.cell, found.digit, found.reason) == (cell, digit, reason)


@pytest.mark.parametrize("size", [4, 9])
def test_deductions_lead_to_the_solution(size):
    for seed in range(5):
        puzzle = draw_puzzle(size, num_givens={4: 5, 9: 26}[size], seed=seed)
        board = puzzle.givens
        while 0 in board:
            found = deduce(board, puzzle)
            board = (*board[: found.cell], found.digit, *board[found.cell + 1 :])
        assert board == puzzle.solution


def test_a_number_of_givens_that_no_puzzle_has_is_refused():
    with pytest.raises(ConfigError, match=r"num_givens is 2.*Use a larger number"):
        draw_puzzle(4, num_givens=2, seed=0)
