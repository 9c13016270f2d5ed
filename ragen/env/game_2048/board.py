"""Sliding and merging tiles. A board is a tuple of rows, a row a tuple of tiles, 0 for an empty cell."""

from __future__ import annotations

from functools import lru_cache

from ragen.seeding import Rng

ACTIONS = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
UP, DOWN, LEFT, RIGHT = ACTIONS
SHARE_OF_FOURS = 0.1

Row = tuple[int, ...]
Board = tuple[Row, ...]


@lru_cache(maxsize=1 << 16)
def slide_row(row: Row) -> tuple[Row, Row]:
    """A row after its tiles slid to the left: (the row, the tiles that came about by merging).

    (2, 0, 2, 4) -> ((4, 4, 0, 0), (4,)): a tile that came about does not merge again in the same move.
    """
    kept: list[int] = []
    merged: list[int] = []
    can_merge = False
    for tile in filter(None, row):
        if can_merge and kept[-1] == tile:
            kept[-1] = 2 * tile
            merged.append(2 * tile)
            can_merge = False
        else:
            kept.append(tile)
            can_merge = True
    return (*kept, *(0,) * (len(row) - len(kept))), tuple(merged)


def slide(board: Board, action: int) -> tuple[Board, Row]:
    """The board after its tiles slid, before a new one comes: (the board, the tiles that came about by merging)."""
    # Every direction is the one to the left, on a board that is turned over and back.
    rows = tuple(zip(*board)) if action in (UP, DOWN) else board
    if action in (DOWN, RIGHT):
        rows = tuple(row[::-1] for row in rows)
    slid = [slide_row(row) for row in rows]
    rows = tuple(row for row, _ in slid)
    if action in (DOWN, RIGHT):
        rows = tuple(row[::-1] for row in rows)
    return tuple(zip(*rows)) if action in (UP, DOWN) else rows, tuple(tile for _, new in slid for tile in new)


def moves(board: Board) -> dict[int, tuple[Board, Row]]:
    """The actions that move a tile -> what they lead to."""
    return {action: after for action in ACTIONS if (after := slide(board, action))[0] != board}


def empty_cells(board: Board) -> list[tuple[int, int]]:
    return [(r, c) for r, row in enumerate(board) for c, tile in enumerate(row) if not tile]


def with_tile(board: Board, cell: tuple[int, int], tile: int) -> Board:
    r, c = cell
    return (*board[:r], (*board[r][:c], tile, *board[r][c + 1 :]), *board[r + 1 :])


def add_tile(board: Board, rng: Rng) -> Board:
    """The board with a 2 or, one time in ten, a 4 on a random empty cell."""
    cell = rng.choice(empty_cells(board))
    return with_tile(board, cell, 4 if rng.random() < SHARE_OF_FOURS else 2)


def largest(board: Board) -> int:
    return max(map(max, board))
