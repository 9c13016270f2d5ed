"""Small drawings for boards: a tile is 16 by 16 pixels, a board is its tiles side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TILE = 16
"""Pixels per side of a tile."""

Colour = tuple[int, int, int]

ROWS, COLUMNS = np.mgrid[0:TILE, 0:TILE]  # [TILE, TILE] each
CENTRE = (TILE - 1) / 2


def plain(colour: Colour) -> np.ndarray:
    """A tile of one colour, uint8 [TILE, TILE, 3]."""
    return np.full((TILE, TILE, 3), colour, np.uint8)


def disc(tile: np.ndarray, radius: float, colour: Colour, *, row: float = CENTRE, col: float = CENTRE) -> np.ndarray:
    """The tile with a filled circle on it."""
    return painted(tile, (ROWS - row) ** 2 + (COLUMNS - col) ** 2 <= radius**2, colour)


def diamond(tile: np.ndarray, radius: float, colour: Colour) -> np.ndarray:
    """The tile with a filled square standing on its corner."""
    return painted(tile, abs(ROWS - CENTRE) + abs(COLUMNS - CENTRE) <= radius, colour)


def box(tile: np.ndarray, top: int, left: int, bottom: int, right: int, colour: Colour) -> np.ndarray:
    """The tile with a filled rectangle; bottom and right are the first pixels outside."""
    tile = tile.copy()
    tile[top:bottom, left:right] = colour
    return tile


def crate(tile: np.ndarray, fill: Colour, edge: Colour) -> np.ndarray:
    """The tile with a wooden box: a framed square with a cross."""
    tile = box(box(tile, 2, 2, TILE - 2, TILE - 2, edge), 4, 4, TILE - 4, TILE - 4, fill)
    inside = (abs(ROWS - CENTRE) < 5) & (abs(COLUMNS - CENTRE) < 5)
    on_cross = (abs(ROWS - COLUMNS) <= 0) | (abs(ROWS + COLUMNS - (TILE - 1)) <= 0)
    return painted(tile, inside & on_cross, edge)


def person(tile: np.ndarray, colour: Colour) -> np.ndarray:
    """The tile with a small figure: a head and a body."""
    tile = box(tile, 8, 4, TILE - 2, TILE - 4, colour)
    return disc(tile, 3.2, (250, 214, 165), row=5)


def painted(tile: np.ndarray, where: np.ndarray, colour: Colour) -> np.ndarray:
    """A copy of the tile with the chosen pixels in one colour."""
    tile = tile.copy()
    tile[where] = colour
    return tile


def board(tiles: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """The tiles side by side, uint8 [rows * TILE, columns * TILE, 3]."""
    return np.concatenate([np.concatenate(row, axis=1) for row in tiles], axis=0)
