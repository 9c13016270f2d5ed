"""Sudoku puzzles: how they are drawn, searched and reasoned about.

A board is a tuple of digits in reading order, 0 for an empty cell. Sets of digits are integers: bit d stands for the
digit d, so the digits that a cell may take are one operation on the sets of its row, its column and its box.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ragen.errors import ConfigError
from ragen.seeding import Rng

MAX_ATTEMPTS = 200
"""Grids from which cells are taken away before a number of givens counts as impossible."""

Board = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Units:
    """The rows, columns and boxes of a size."""

    size: int
    box: int
    """Rows and columns of a box."""
    of_cell: tuple[tuple[int, int, int], ...]
    """Cell -> its row, column and box, as indices of `cells`."""
    cells: tuple[tuple[int, ...], ...]
    """Unit -> its cells: first the rows, then the columns, then the boxes."""
    names: tuple[str, ...]
    """Unit -> what it is called: "row 1"."""


@lru_cache(maxsize=8)
def units(size: int) -> Units:
    """The units of a board, computed once."""
    box = 2 if size == 4 else 3
    of_cell = []
    for cell in range(size * size):
        row, col = divmod(cell, size)
        of_cell.append((row, size + col, 2 * size + row // box * box + col // box))
    cells = tuple(tuple(cell for cell, mine in enumerate(of_cell) if unit in mine) for unit in range(3 * size))
    names = tuple(f"{kind} {index + 1}" for kind in ("row", "column", "box") for index in range(size))
    return Units(size, box, tuple(of_cell), cells, names)


@dataclass(frozen=True, slots=True)
class Puzzle:
    """The given digits and the only way to complete them."""

    size: int
    givens: Board
    solution: Board


def taken(board: Board, size: int) -> list[int]:
    """The set of digits in each unit."""
    table, found = units(size), [0] * (3 * size)
    for cell, digit in enumerate(board):
        if digit:
            for unit in table.of_cell[cell]:
                found[unit] |= 1 << digit
    return found


def candidates(board: Board, cell: int, size: int) -> list[int]:
    """The digits that break no rule on an empty cell."""
    return fitting(taken(board, size), cell, size)


def fitting(used: list[int], cell: int, size: int) -> list[int]:
    """The digits that are in none of the units of a cell, given the sets of all units."""
    row, col, box = units(size).of_cell[cell]
    return [digit for digit in range(1, size + 1) if not (used[row] | used[col] | used[box]) >> digit & 1]


def complete(board: Board, size: int, rng: Rng | None = None) -> Board | None:
    """A way to fill the empty cells, or None; with `rng` the digits are tried in random order."""
    table, digits = units(size), list(board)
    used, empty = taken(board, size), [cell for cell, digit in enumerate(board) if not digit]
    everything = (1 << size + 1) - 2

    def search() -> bool:
        # The cell with the fewest candidates: one without any ends the branch, one with a single costs no branch.
        best, fewest, free = -1, size + 1, 0
        for index, cell in enumerate(empty):
            row, col, box = table.of_cell[cell]
            left = everything & ~(used[row] | used[col] | used[box])
            count = left.bit_count()
            if count < fewest:
                best, fewest, free = index, count, left
                if count <= 1:
                    break
        if best < 0:
            return True
        if not fewest:
            return False
        cell = empty[best]
        empty[best] = empty[-1]
        empty.pop()
        order = [digit for digit in range(1, size + 1) if free >> digit & 1]
        if rng is not None:
            rng.shuffle(order)
        for digit in order:
            bit = 1 << digit
            for unit in table.of_cell[cell]:
                used[unit] |= bit
            digits[cell] = digit
            if search():
                return True
            for unit in table.of_cell[cell]:
                used[unit] ^= bit
        digits[cell] = 0
        empty.append(cell)
        empty[best], empty[-1] = empty[-1], empty[best]
        return False

    return tuple(digits) if search() else None


def draw_puzzle(size: int, *, num_givens: int, seed: int) -> Puzzle:
    """The puzzle of a seed: a random full grid, from which cells are emptied while one solution is left."""
    for attempt in range(MAX_ATTEMPTS):
        rng = Rng(seed, "sudoku", attempt)
        solution = complete((0,) * size**2, size, rng)
        assert solution is not None, "an empty board can be filled"
        order = list(range(size**2))
        rng.shuffle(order)
        board = solution
        for cell in order:
            if board.count(0) == size**2 - num_givens:
                break
            board = without(board, cell, size) or board
        if board.count(0) == size**2 - num_givens:
            return Puzzle(size, board, solution)
    raise ConfigError(
        f"sudoku.num_givens is {num_givens}: {MAX_ATTEMPTS} random {size}x{size} grids had no puzzle with so few "
        "digits. Use a larger number."
    )


def without(board: Board, cell: int, size: int) -> Board | None:
    """The board with one cell emptied; None where another digit would then fit into it."""
    emptied = (*board[:cell], 0, *board[cell + 1 :])
    for digit in candidates(emptied, cell, size):
        if digit != board[cell] and complete((*board[:cell], digit, *board[cell + 1 :]), size):
            return None
    return emptied


@dataclass(frozen=True, slots=True)
class Deduction:
    """A digit that is known, and why."""

    cell: int
    digit: int
    reason: str
    """Such as "only 3 fits" or "3 fits nowhere else in row 2"."""


def deduce(board: Board, puzzle: Puzzle) -> Deduction:
    """The next digit to write on a board without mistakes, the one with the simplest reason; it must have a free cell.

    First a cell that only one digit fits into, then a digit that fits into one cell of a unit only. Where neither helps
    the digit is looked up in the solution, and the reason says that a search found it.
    """
    size, table, used = puzzle.size, units(puzzle.size), taken(board, puzzle.size)
    free = {cell: fitting(used, cell, size) for cell, digit in enumerate(board) if not digit}
    for cell, digits in free.items():
        if len(digits) == 1:
            return Deduction(cell, digits[0], f"only {digits[0]} fits")
    for unit, name in zip(table.cells, table.names):
        for digit in range(1, size + 1):
            homes = [cell for cell in unit if digit in free.get(cell, ())]
            if len(homes) == 1:
                return Deduction(homes[0], digit, f"{digit} fits nowhere else in {name}")
    cell = min(free, key=lambda cell: len(free[cell]))
    return Deduction(cell, puzzle.solution[cell], f"of {', '.join(map(str, free[cell]))} only one leads to the end")
