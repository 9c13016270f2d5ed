"""Environments on a board of cells: their options, their observations and their pictures."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ragen.config.bounds import Bound
from ragen.env.base import Env, StartedEnv
from ragen.env.bits import moves_by_action, row_cols

if TYPE_CHECKING:
    import numpy as np

ObservationFormat = Annotated[Literal["grid", "coord", "grid_coord"], "Rows of symbols, coordinates, or both."]
Symbol = Annotated[
    str, Bound(lambda s: len(s) == 1 and s.isprintable() and not s.isspace(), "Use one visible character.")
]
DISTINCT = Bound(
    lambda symbols: len(set(dataclasses.astuple(symbols))) == len(dataclasses.fields(symbols)),
    "Give each kind of cell its own symbol.",
)
RowCol = tuple[int, int]  # zero-based


class BoardEnv(StartedEnv, Env):
    """A player on a board. The config has `symbols`, a field per kind of cell, and an `observation_format`.

    Cells and sets of cells are integers, see `ragen.env.bits`.
    """

    action_names: ClassVar[dict[int, str]]
    picture: ClassVar[str]
    """Module with the TILES; NumPy is loaded with it."""

    num_rows = num_columns = 0

    @cached_property
    def symbols(self) -> dict[str, str]:
        return dataclasses.asdict(self.config.symbols)

    def set_size(self, num_rows: int, num_columns: int, stride: int) -> None:
        """Take a board for a level, where it is another one: levels from files differ in size."""
        if (num_rows, num_columns) == (self.num_rows, self.num_columns):
            return
        self.num_rows, self.num_columns, self.stride = num_rows, num_columns, stride
        self.by_action = moves_by_action(self.action_names, stride)
        self.cells = [[1 << (row * stride + col) for col in range(num_columns)] for row in range(num_rows)]
        self.board = sum(map(sum, self.cells))

    @abstractmethod
    def kind(self, cell: int) -> str:
        """What is on a cell, as the name of its symbol."""

    @abstractmethod
    def listed(self) -> dict[str, int]:
        """Heading -> set of cells, for an observation in coordinates."""

    def tiles(self) -> Mapping[str, np.ndarray]:
        """Kind of cell -> its picture."""
        return import_module(self.picture).TILES

    @property
    def actions(self) -> dict[int, str]:
        return dict(self.action_names)

    def render(self) -> str:
        """The board in the configured observation format."""
        grid = "\n".join("".join(self.symbols[self.kind(cell)] for cell in row) for row in self.cells)
        if self.config.observation_format == "grid":
            return grid
        lines = [f"Board: {self.num_rows} rows, {self.num_columns} columns"]
        listed = {heading: row_cols(cells, self.stride) for heading, cells in self.listed().items() if cells}
        lines += [f"{heading}: {', '.join(map(str, cells))}" for heading, cells in listed.items()]
        return "\n".join(lines if self.config.observation_format == "coord" else [*lines, "Grid:", grid])

    def notes(self) -> str:
        """What a reader of the board must know: its size, its symbols where a grid is shown, how cells are counted."""
        notes = f"The board has {self.num_rows} rows and {self.num_columns} columns."
        if self.config.observation_format != "coord":
            named = [f"{symbol} {name.replace('_', ' ')}" for name, symbol in self.symbols.items()]
            notes += f" Symbols: {', '.join(named)}."
        if self.config.observation_format != "grid":
            notes += " Coordinates are (row, col), counted from 0; row 0 is the top, col 0 is on the left."
        return notes

    def render_rgb(self) -> np.ndarray:
        """The board as a picture, 16 pixels a cell."""
        from ragen.env.picture import board

        tiles = self.tiles()
        return board([[tiles[self.kind(cell)] for cell in row] for row in self.cells])


def offset_in_words(start: RowCol, end: RowCol) -> str:
    """The way from one cell to another; ((0, 1), (2, 0)) -> "down 2, left 1"; the same cell -> "here"."""
    down, right = end[0] - start[0], end[1] - start[1]
    parts = [f"{'down' if down > 0 else 'up'} {abs(down)}"] if down else []
    parts += [f"{'right' if right > 0 else 'left'} {abs(right)}"] if right else []
    return ", ".join(parts) or "here"
