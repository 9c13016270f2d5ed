"""Levels drawn as text."""

from ragen.env.frozen_lake.lake import Lake
from ragen.env.sokoban.env import SokobanConfig, SokobanEnv
from ragen.env.sokoban.room import Level


def room(*rows: str) -> Level:
    """A Sokoban level from its default symbols."""

    def cells(symbols: str) -> int:
        return sum(1 << i for i, symbol in enumerate("".join(rows)) if symbol in symbols)

    return Level(len(rows), len(rows[0]), cells("_O√XPS"), cells("O√S"), cells("√X"), cells("PS"))


def sokoban(*rows: str, **options) -> SokobanEnv:
    """A Sokoban environment that stands on the drawn level."""
    level = room(*rows)
    env = SokobanEnv(SokobanConfig(dim_x=level.rows, dim_y=level.columns, num_boxes=1, **options))
    env.load(level)
    return env


def lake(*rows: str) -> Lake:
    """A FrozenLake level: P start, G goal, O hole, _ ice."""
    size = len(rows)

    def cells(symbols: str) -> int:
        return sum(1 << i for i, symbol in enumerate(" ".join(rows)) if symbol in symbols)

    return Lake(size, cells("_PG"), cells("P"), cells("G"))
