"""FrozenLake as a picture.

Tested in tests/env/test_picture.py.
"""

from __future__ import annotations

from ragen.env.picture import TILE, box, disc, person, plain

EDGE, WATER, DARK_WATER = (176, 208, 224), (58, 110, 165), (28, 62, 110)
POLE, RED, PURPLE = (80, 80, 80), (214, 69, 65), (94, 60, 153)

ICE = box(plain(EDGE), 0, 0, TILE - 1, TILE - 1, (222, 240, 248))
HOLE = disc(disc(ICE, 6.6, WATER), 5, DARK_WATER)
GOAL = box(box(ICE, 2, 4, 15, 6, POLE), 2, 6, 8, 13, RED)
TILES = {  # by kind of cell
    "player": person(ICE, PURPLE),
    "frozen": ICE,
    "hole": HOLE,
    "goal": GOAL,
    "player_in_hole": disc(HOLE, 2.5, (250, 214, 165)),
    "player_on_goal": box(box(person(ICE, PURPLE), 1, 12, 15, 13, POLE), 1, 13, 6, 16, RED),
}
