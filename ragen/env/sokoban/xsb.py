"""Sokoban levels from text files in the XSB format, the one of Boxoban's and Microban's collections.

    ; 0                   # wall        @ player    + player on a target
    #####                 $ box         * box on a target
    #@$.#                 . target      space, - or _ floor
    #####

A level is lines of these characters with a wall in each. Blank lines, comments (;) and any other text, such as a title,
stand between levels. A wrong level is an error that names its line: a level that was left out would shift all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ragen.env.bits import flood, row_cols
from ragen.env.sokoban.room import Level
from ragen.errors import ConfigError
from ragen.seeding import fixed_hash

Split = Literal["all", "train", "test"]
OWN_LEVELS = Path(__file__).with_name("levels")
"""Files that come with the package."""
FLOOR, WALLS, PLAYERS, BOXES, TARGETS = " -_", "#", "@+", "$*", ".*+"
KNOWN = set(FLOOR + WALLS + PLAYERS + BOXES + TARGETS)
MAX_SIDE = 64
"""Cells of a side, the outer wall included."""
MAX_BYTES = 50_000_000
TEST_SHARE = 5
"""One level of so many is a test level."""
KEY = "sokoban.levels_file"
"""The option that names a file; messages begin with it."""
MAX_SHOWN = 40
"""Characters of a wrong line that a message shows."""


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one level."""

    line: int
    """Number of the first one, counted from 1."""
    rows: tuple[str, ...]


def find_file(name: str) -> Path:
    """The file of a name: a path, else one of the files that come with the package."""
    path = Path(name).expanduser()
    for found in (path, OWN_LEVELS / name):
        if found.is_file():
            return found
    own = ", ".join(sorted(each.name for each in OWN_LEVELS.glob("*.xsb")))
    raise ConfigError(f"{KEY}: there is no file {path}. Write the path of an XSB file, or one of: {own}.")


def read_levels(name: str, split: Split) -> tuple[Level, ...]:
    """The levels of a file that belong to a split, each one once, in the order of the file."""
    path = find_file(name)
    try:
        status = path.stat()
        return _read(path, split, (status.st_mtime_ns, status.st_size))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{KEY}: {path} cannot be read as text ({error}). Write the path of an XSB file.") from error


@lru_cache(maxsize=16)  # every environment of a rollout reads the same file
def _read(path: Path, split: Split, version: tuple[int, int]) -> tuple[Level, ...]:
    source = f"{KEY}: {path}"
    if version[1] > MAX_BYTES:
        raise ConfigError(
            f"{source}: {version[1]:,} bytes are too many, {MAX_BYTES:,} are the most. Use a part of the file."
        )
    text = path.read_text(encoding="utf-8-sig")
    found = (to_level(block, source) for block in blocks(text, source))
    levels = list(dict.fromkeys(found))
    if not levels:
        raise ConfigError(
            f"{source}: there is no level in it. Write levels as lines of {''.join(sorted(KNOWN - {' '}))}."
        )
    return tuple(levels if split == "all" else choose(levels, split, source))


def choose(levels: list[Level], split: Split, source: str) -> list[Level]:
    """The test levels, a fifth chosen by content and not by position, or the others.

    The order of a file changes nothing, and a level that stands in it twice is in one split only.
    """
    if len(levels) < 2:
        raise ConfigError(f"{source}: it has one level, which cannot be train and test. Set split: all, or add levels.")
    ranked = sorted(levels, key=content_hash)
    test = set(ranked[: max(1, len(ranked) // TEST_SHARE)])
    return [level for level in levels if (level in test) == (split == "test")]


def content_hash(level: Level) -> int:
    return fixed_hash(level.rows, level.columns, level.floor, level.targets, level.boxes, level.player)


def blocks(text: str, source: str) -> Iterator[Block]:
    """The levels of a text as lines; a line that looks like a level and holds an unknown character is an error."""
    rows: list[str] = []
    first = 0
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        line = line.rstrip()
        if is_row(line, f"{source}, line {number}", is_inside=bool(rows)):
            first = first if rows else number
            rows.append(line)
        elif rows:
            yield Block(first, tuple(rows))
            rows = []


def is_row(line: str, where: str, *, is_inside: bool) -> bool:
    """Whether a line belongs to a level; `is_inside` says that the line before it does."""
    if not line.lstrip().startswith(tuple("#-_$*.@+")) or WALLS not in line:
        return False
    unknown = next((symbol for symbol in line if symbol not in KNOWN), None)
    if unknown is None:
        return True
    if not is_inside and not line.lstrip().startswith(WALLS):
        return False  # a title with a # in it
    raise ConfigError(
        f"{where}: {line[:MAX_SHOWN]!r} has the character {unknown!r}, which no level knows. Correct it, or begin a "
        "line of text with ;."
    )


def to_level(block: Block, source: str) -> Level:
    """The level of a block: what the player can reach within the walls, with one ring of wall around it."""
    where = f"{source}, the level from line {block.line} on"
    columns = max(map(len, block.rows)) + 2  # a spare cell on each side, to notice an open wall
    rows = ["", *block.rows, ""]
    if len(rows) > MAX_SIDE + 2 or columns > MAX_SIDE + 2:
        raise wrong(where, f"it has {len(block.rows)} rows and {columns - 2} columns, {MAX_SIDE} are the most")
    cells = [f" {row}".ljust(columns) for row in rows]

    def of(symbols: str) -> int:
        return sum(1 << i for i, symbol in enumerate("".join(cells)) if symbol in symbols)

    players, walls = of(PLAYERS), of(WALLS)
    if players.bit_count() != 1:
        raise wrong(where, f"it has {players.bit_count()} players and must have 1")
    everywhere = (1 << columns * len(cells)) - 1
    layers, floor = flood(players, everywhere & ~walls, columns)
    reached = row_cols(floor, columns)
    if (gap := first_outside(layers, len(cells), columns)) is not None:
        # Above the first row and below the last one it is the row beside it that is open.
        line = block.line + min(max(gap, 1), len(block.rows)) - 1
        raise wrong(f"{source}, line {line}", f"the outer wall of the level from line {block.line} on has a gap")
    # A box behind walls that nobody reaches is part of them if it is at home, else the level has no solution.
    boxes, targets = of(BOXES), of(TARGETS)
    outside = (boxes ^ targets) & ~floor
    boxes, targets = boxes & floor, targets & floor
    if outside or not boxes or boxes.bit_count() != targets.bit_count():
        count = f"{boxes.bit_count()} boxes and {targets.bit_count()} targets within reach"
        raise wrong(where, f"it has {count}, and must have as many of both and none beyond")
    if boxes == targets:
        raise wrong(where, "all its boxes are on targets already")
    return cropped(reached, columns, floor=floor, targets=targets, boxes=boxes, player=players)


def first_outside(layers: list[int], rows: int, columns: int) -> int | None:
    """The row in which a walker from the first layer first stands on the edge of the board; None: never."""
    for layer in layers:
        for r, c in row_cols(layer, columns):
            if r in (0, rows - 1) or c in (0, columns - 1):
                return r
    return None


def wrong(where: str, reason: str) -> ConfigError:
    return ConfigError(f"{where}: {reason}. Correct the level or remove it.")


def cropped(reached: list[tuple[int, int]], columns: int, **sets: int) -> Level:
    """The level without what lies outside of the ring of walls around its floor."""
    top, left = min(r for r, _ in reached) - 1, min(c for _, c in reached) - 1
    height, width = max(r for r, _ in reached) - top + 2, max(c for _, c in reached) - left + 2

    def moved(cells: int) -> int:
        return sum(1 << (r - top) * width + c - left for r, c in row_cols(cells, columns))

    return Level(height, width, **{name: moved(cells) for name, cells in sets.items()})


def to_text(level: Level) -> str:
    """A level in the XSB format."""

    def symbol(cell: int) -> str:
        is_target = bool(level.targets & cell)
        if level.player & cell:
            return "+" if is_target else "@"
        if level.boxes & cell:
            return "*" if is_target else "$"
        return "." if is_target else " " if level.floor & cell else "#"

    rows = (range(r * level.columns, (r + 1) * level.columns) for r in range(level.rows))
    return "\n".join("".join(symbol(1 << index) for index in row) for row in rows)
