"""The player of the reference line: looks one move and one new tile ahead, and judges boards by hand-made rules.

It is a yardstick that any good player beats, not an optimal one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from ragen.env.game_2048.board import Board, Row, empty_cells, moves, with_tile

LOST = -1e6
EMPTY_WORTH = 3.0
"""An empty cell, in units of a step between neighbours that are in order."""


@lru_cache(maxsize=1 << 16)
def row_worth(row: Row) -> float:
    """How well a row is ordered: small steps between neighbours are good, and steps that all go one way cost less.

    Tiles are compared by how often 2 was doubled: (8, 4, 2) falls by one twice, (4, 8, 2) rises by one and falls by
    two.
    """
    levels = [tile.bit_length() for tile in row]
    steps = [b - a for a, b in pairwise(levels)]
    rises, falls = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    roughness = sum(abs(b - a) for a, b in pairwise(levels) if a and b)
    return -2.0 * min(rises, falls) - 0.5 * roughness


def worth(board: Board) -> float:
    """How promising a board is."""
    ordered = sum(map(row_worth, board)) + sum(map(row_worth, zip(*board)))
    return ordered + EMPTY_WORTH * sum(row.count(0) for row in board)


@lru_cache(maxsize=1 << 14)  # a plan is asked for again after each of its moves
def best_move(board: Board) -> int | None:
    """The action after which a new tile does the least harm on average; None where nothing moves.

    Only tiles of 2 are looked at; among equals the action that is listed first is taken.
    """
    found = {action: expected_worth(after) for action, (after, _) in moves(board).items()}
    return max(found, key=found.__getitem__, default=None)


def expected_worth(after: Board) -> float:
    """Mean over the empty cells of the best board that can follow a tile of 2 there."""
    cells = empty_cells(after)
    total = 0.0
    for cell in cells:
        following = [worth(board) for board, _ in moves(with_tile(after, cell, 2)).values()]
        total += max(following, default=LOST)
    return total / len(cells)
