"""Boards as text: the observation formats, the legend and directions in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ragen.env.options import require

ObservationFormat = Literal["grid", "coord", "grid_coord"]
RowCol = tuple[int, int]  # zero-based (row, column)

FORMATS = {
    "grid": lambda grid, coordinates: grid,
    "coord": lambda grid, coordinates: coordinates,
    "grid_coord": lambda grid, coordinates: f"{coordinates}\nGrid:\n{grid}",
}


def require_format(field: str, value: str) -> None:
    """Refuse an observation format that does not exist."""
    require(value in FORMATS, field, value, f"Choose from: {', '.join(FORMATS)}.")


def grid_text(rows: Iterable[Iterable[str]]) -> str:
    """Rows of symbols, one line each, without separators."""
    return "\n".join("".join(row) for row in rows)


def coordinate_text(num_rows: int, num_columns: int, kinds: Sequence[tuple[str, Sequence[RowCol]]]) -> str:
    """The board's size and one line per kind of thing that is on it.

    (2, 3, [("Goal", [(0, 2)]), ("Holes", [])]) -> "Board: 2 rows, 3 columns\nGoal: (0, 2)"
    """
    lines = [f"Board: {num_rows} rows, {num_columns} columns"]
    lines += [f"{kind}: {', '.join(map(str, members))}" for kind, members in kinds if members]
    return "\n".join(lines)


def board_notes(symbols: Any, num_rows: int, num_columns: int, observation_format: str) -> str:
    """What a reader of the board must know: its size, its symbols where a grid is shown, how cells are counted."""
    notes = f"The board has {num_rows} rows and {num_columns} columns."
    if observation_format != "coord":
        named = [f"{symbol} {name.replace('_', ' ')}" for name, symbol in dataclasses.asdict(symbols).items()]
        notes += f" Symbols: {', '.join(named)}."
    if observation_format != "grid":
        notes += " Coordinates are (row, col), counted from 0; row 0 is the top, col 0 is on the left."
    return notes


def offset_in_words(start: RowCol, end: RowCol) -> str:
    """The way from one cell to another; ((0, 1), (2, 0)) -> "down 2, left 1"; the same cell -> "here"."""
    down, right = end[0] - start[0], end[1] - start[1]
    parts = [f"{'down' if down > 0 else 'up'} {abs(down)}"] if down else []
    parts += [f"{'right' if right > 0 else 'left'} {abs(right)}"] if right else []
    return ", ".join(parts) or "here"
