"""Observations as boards that can be drawn: Sokoban, FrozenLake, Sudoku, 2048 and the bandits; of others the text.

Boards are read from what was observed, with the symbols of the run's configuration: nothing is played again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from ragen.env.frozen_lake.env import FrozenLakeSymbols
from ragen.env.sokoban.env import SokobanSymbols
from ragen.types import Episode
from ragen.view.reading.settings import at

SYMBOLS: dict[str, type] = {"sokoban": SokobanSymbols, "frozen_lake": FrozenLakeSymbols}
LARGEST = 64
"""Cells of a side."""
GRID = "Grid:\n"
SIZE = re.compile(r"Board: (?P<rows>\d{1,3}) rows, (?P<columns>\d{1,3}) columns\n")
LISTED = re.compile(r"^([A-Z][a-z ]{0,30}): ([(), \d]+)$", re.MULTILINE)
CELL = re.compile(r"\((\d{1,3}), (\d{1,3})\)")
PLURALS = {"targets": "target", "boxes": "box", "boxes_on_target": "box_on_target", "holes": "hole"}
GROUND = {"sokoban": "floor", "frozen_lake": "frozen"}
ARMS = re.compile(r"two arms[:,] (?P<first>[^.]{1,80}?) and (?P<second>[^.]{1,80}?)\.")
NUMBERS = re.compile(r"(?:r\d: )? {0,6}(?P<cells>[\d.]{1,7}(?: {1,7}[\d.]{1,7}){1,8})")
PULLED = re.compile(r"You pulled (?P<arm>[^.]{1,80}?) and got (?P<points>-?[\d.e+-]+) points")

Frame = dict[str, Any]


def frame_of(episode: Episode, observation: str, settings: Mapping[str, Any]) -> Frame:
    """{"kind": "sokoban", "rows": [["wall", "player"], ...]}, or {"kind": "text", "text": ...}"""
    draw = KINDS.get(episode.env_type)
    frame = draw(episode, observation, settings) if draw else None
    return frame or {"kind": "text", "text": observation}


def board(episode: Episode, observation: str, settings: Mapping[str, Any]) -> Frame | None:
    """Rows of kinds of cells; None where the observation shows no grid, or another one."""
    if (size := SIZE.match(observation)) and GRID not in observation:
        return listed(episode, observation[size.end() :], int(size["rows"]), int(size["columns"]))
    names = symbols_of(episode, settings)
    grid = observation.rpartition(GRID)[2].strip("\n")
    lines = grid.split("\n")
    is_grid = len({len(line) for line in lines}) == 1 and 0 < len(lines[0]) <= LARGEST and len(lines) <= LARGEST
    if not is_grid or not set(grid) - {"\n"} <= names.keys():
        return None
    return {"kind": episode.env_type, "rows": [[names[symbol] for symbol in line] for line in lines]}


def listed(episode: Episode, text: str, rows: int, columns: int) -> Frame | None:
    """A board from coordinates alone; what they leave out (walls of Sokoban) looks like its plain ground.

    Targets: (3, 1), (4, 2) -> cells of the kind target
    """
    if not (0 < rows <= LARGEST and 0 < columns <= LARGEST):
        return None
    cells = [[GROUND[episode.env_type]] * columns for _ in range(rows)]
    kinds = {field.name for field in dataclasses.fields(SYMBOLS[episode.env_type])}
    for heading, cells_of_kind in LISTED.findall(text):
        name = heading.lower().replace(" ", "_")
        kind = PLURALS.get(name, name)
        for row, column in (map(int, found) for found in CELL.findall(cells_of_kind)):
            # Holes are listed behind the player that may stand in one of them.
            if kind in kinds and row < rows and column < columns and not cells[row][column].startswith("player"):
                cells[row][column] = kind
    return {"kind": episode.env_type, "rows": cells}


def numbers(episode: Episode, observation: str, settings: Mapping[str, Any]) -> Frame | None:
    """Rows of numbers, an empty text for an empty cell, and what is said below them.

    "r1: 1 .\nr2: . 2\nrow 1 has a 1" -> {"values": [["1", ""], ["", "2"]], "said": "row 1 has a 1", ...}
    """
    values: list[list[str]] = []
    lines = observation.split("\n")
    for line in lines[:LARGEST]:
        found = NUMBERS.fullmatch(line)
        if found is None:
            break
        values.append(["" if cell == "." else cell for cell in found["cells"].split()])
    if not values or {len(row) for row in values} != {len(values)}:
        return None
    return {"kind": episode.env_type, "values": values, "said": "\n".join(lines[len(values) :])}


def symbols_of(episode: Episode, settings: Mapping[str, Any]) -> dict[str, str]:
    """Character -> kind of cell, as the run's configuration has them."""
    defaults = dataclasses.asdict(SYMBOLS[episode.env_type]())
    given = at(settings, "custom_envs", episode.tag, "env_config", "symbols")
    symbols = defaults | (given if isinstance(given, dict) else {})
    return {str(symbol): kind for kind, symbol in symbols.items() if kind in defaults}


def arms(episode: Episode, observation: str, settings: Mapping[str, Any]) -> Frame | None:
    """The two arms, and which one was pulled."""
    first = ARMS.search(episode.turns[0].observation if episode.turns else observation)
    if first is None:
        return None
    pull = PULLED.search(observation)
    return {
        "kind": "bandit",
        "arms": [first["first"], first["second"]],
        "pulled": pull["arm"] if pull else None,
        "points": pull["points"] if pull else None,
    }


KINDS: dict[str, Callable[[Episode, str, Mapping[str, Any]], Frame | None]] = {
    "sokoban": board,
    "frozen_lake": board,
    "sudoku": numbers,
    "game_2048": numbers,
    "bandit": arms,
    "two_armed_bandit": arms,
}
