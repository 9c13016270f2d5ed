"""Writes the file of Sokoban levels that comes with the package: rooms of mixed sizes, with one box or two.

python tools/sokoban_levels.py > ragen/env/sokoban/levels/mixed.xsb
"""

from __future__ import annotations

from collections.abc import Iterator

from ragen.env.sokoban.room import Level, generate_level
from ragen.env.sokoban.solver import search
from ragen.env.sokoban.xsb import Block, to_level, to_text
from ragen.seeding import Rng

NUM_LEVELS = 150
FEWEST_MOVES, MOST_MOVES = 3, 12


def draw_levels() -> Iterator[Level]:
    """Different levels with solutions of a few moves, without end."""
    seen: set[Level] = set()
    seed = 0
    while True:
        seed += 1
        rng = Rng(seed, "mixed.xsb")
        rows, columns = (5 + rng.below(3) for _ in range(2))
        num_boxes = 1 if rng.random() < 0.7 else 2
        drawn = generate_level(rows, columns, num_boxes=num_boxes, search_depth=MOST_MOVES, seed=seed)
        level = to_level(Block(1, tuple(to_text(drawn).split("\n"))), "drawn")  # without the walls that nobody meets
        if level not in seen and FEWEST_MOVES <= len(search(level).actions or ()) <= MOST_MOVES:
            seen.add(level)
            yield level


def main() -> None:
    print("; Rooms of up to 7 rows and columns, one box or two, made by tools/sokoban_levels.py")
    for number, level in zip(range(1, NUM_LEVELS + 1), draw_levels()):
        print(f"\n; {number}\n{to_text(level)}")


if __name__ == "__main__":
    main()
