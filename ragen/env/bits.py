"""Sets of board cells as Python integers: bit row * stride + column is set when the cell is in the set.

One integer operation then moves or tests every cell at once, which makes search in plain Python fast. The caller keeps
a column outside every `free` set (an outer wall, or one spare column), so that no walk wraps into the next row.
"""

from __future__ import annotations

from collections.abc import Mapping

Move = tuple[int, int]
"""A step of one cell as (bits to the left, bits to the right); one of the two is 0, so no branch is needed."""


def moves(stride: int) -> tuple[Move, Move, Move, Move]:
    """The steps up, down, left and right on a board with `stride` bits per row."""
    return (0, stride), (stride, 0), (0, 1), (1, 0)


def moves_by_action(names: Mapping[int, str], stride: int) -> dict[int, Move]:
    """Action id -> step, for actions named Up, Down, Left and Right."""
    up, down, left, right = moves(stride)
    by_name = {"Up": up, "Down": down, "Left": left, "Right": right}
    return {action: by_name[name] for action, name in names.items()}


def moved(cells: int, move: Move) -> int:
    """All cells after one step."""
    left, right = move
    return cells << left >> right


def singles(cells: int) -> list[int]:
    """Each cell of the set as a set of its own, lowest bit first; 0b101 -> [0b1, 0b100]."""
    found = []
    while cells:
        cell = cells & -cells
        found.append(cell)
        cells ^= cell
    return found


def to_row_col(cell: int, stride: int) -> tuple[int, int]:
    """Zero-based (row, column) of a single cell."""
    return divmod(cell.bit_length() - 1, stride)


def row_cols(cells: int, stride: int) -> list[tuple[int, int]]:
    """Zero-based (row, column) of every cell of a set, in reading order."""
    return [to_row_col(cell, stride) for cell in singles(cells)]


def flood(start: int, free: int, stride: int) -> tuple[list[int], int]:
    """Where a walker on `start` can go through `free` cells: (cells k steps away for k = 0, 1, ..., all of them)."""
    layers = [start]
    unreached = free & ~start
    layer = start
    while layer := (layer << 1 | layer >> 1 | layer << stride | layer >> stride) & unreached:
        unreached ^= layer
        layers.append(layer)
    return layers, (free | start) ^ unreached


def shortest_walk(start: int, goal: int, free: int, stride: int, by_action: Mapping[int, Move]) -> list[int] | None:
    """Action ids of a shortest walk from one cell to another through `free` cells; None where there is none."""
    layers, reached = flood(start, free | goal, stride)
    if not reached & goal:
        return None
    while not layers[-1] & goal:
        layers.pop()
    # Walk the layers backwards; among equal ways the action listed first wins, so the result is always the same.
    walk, here = [], goal
    for layer in reversed(layers[:-1]):
        for action, (left, right) in by_action.items():
            if before := (here << right >> left) & layer:
                walk.append(action)
                here = before
                break
    return walk[::-1]
