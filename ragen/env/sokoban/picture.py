"""Sokoban as a picture.

Tested in tests/env/test_picture.py.
"""

from __future__ import annotations

import numpy as np

from ragen.env.picture import box, crate, diamond, person, plain

MORTAR, BRICK = (92, 84, 78), (146, 98, 74)
RED, BLUE = (214, 69, 65), (52, 101, 164)
WOOD, DARK_WOOD = (201, 150, 84), (122, 82, 38)
GREEN, DARK_GREEN = (122, 178, 92), (52, 104, 44)


def wall() -> np.ndarray:
    """Four bricks."""
    tile = plain(MORTAR)
    for top, left, right in ((1, 0, 7), (1, 8, 16), (9, 0, 3), (9, 4, 16)):
        tile = box(tile, top, left, top + 6, right, BRICK)
    return tile


FLOOR = plain((236, 229, 206))
TARGET = diamond(FLOOR, 4, RED)
TILES = {  # by kind of cell
    "wall": wall(),
    "floor": FLOOR,
    "target": TARGET,
    "box_on_target": crate(TARGET, GREEN, DARK_GREEN),
    "box": crate(FLOOR, WOOD, DARK_WOOD),
    "player": person(FLOOR, BLUE),
    "player_on_target": person(diamond(FLOOR, 8, RED), BLUE),
}
