"""MiniGrid's boards in words: the mission, what is carried, and the grid as rows of symbols with a legend.

MiniGrid has wrappers for pictures and numbers and none for text. Used by gymnasium.py for ids that begin with MiniGrid-
or BabyAI-. Needs the extra: pip install -e '.[minigrid]'. Tested in tests/env/adapters/test_minigrid.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PREFIXES = ("MiniGrid-", "BabyAI-")
SUCCESS = "terminated and reward > 0"
"""A mission that is fulfilled gives a reward above 0; lava and wrong objects end it with 0 or less."""
ACTIONS = ("Left", "Right", "Forward", "Pickup", "Drop", "Toggle", "Done")
FACING = ("right", "down", "left", "up")
AGENT = ">v<^"
"""The agent, by where it looks: right, down, left, up."""
SYMBOLS = {"wall": "#", "floor": ".", "door": "D", "key": "K", "ball": "O", "box": "B", "goal": "G", "lava": "~"}
EMPTY, UNSEEN = ".", "?"
NOTES = (
    "The board is a grid. # wall, . floor, D door, K key, O ball, B box, G goal, ~ lava, ? not seen. "
    "> v < ^ is you, looking right, down, left or up. Left and Right turn you; Forward moves you; "
    "Pickup, Drop and Toggle (open a door, a box) act on the cell before you."
)
AGENT_NOTES = "You see the part of the board before you; it is drawn so that you always look up."


def is_minigrid(env_id: str) -> bool:
    return env_id.startswith(PREFIXES)


def describe(env: Any, view: str) -> str:
    """The state of a MiniGrid environment; `view` is agent (what it sees) or full (the whole board)."""
    rows, things = agent_view(env) if view == "agent" else full_view(env)
    carried = env.carrying
    lines = [
        f"Mission: {env.mission}.",
        f"You carry: {name_of(carried)}." if carried else "You carry nothing.",
        *([f"You look {FACING[env.agent_dir]}."] if view == "agent" else []),
        *("".join(row) for row in rows),
        *things,
    ]
    return "\n".join(lines)


def full_view(env: Any) -> tuple[list[list[str]], list[str]]:
    grid = env.grid
    rows = [[symbol(grid.get(x, y)) for x in range(grid.width)] for y in range(grid.height)]
    x, y = env.agent_pos
    rows[y][x] = AGENT[env.agent_dir]
    return rows, list(listed((x, y, grid.get(x, y)) for y in range(grid.height) for x in range(grid.width)))


def agent_view(env: Any) -> tuple[list[list[str]], list[str]]:
    """What the agent sees, turned so that it looks up; it stands in the middle of the last row."""
    grid, seen = env.gen_obs_grid()
    rows = [[symbol(grid.get(x, y)) if seen[x, y] else UNSEEN for x in range(grid.width)] for y in range(grid.height)]
    rows[grid.height - 1][grid.width // 2] = AGENT[3]
    own = (grid.width // 2, grid.height - 1)
    cells = ((x, y) for y in range(grid.height) for x in range(grid.width) if seen[x, y] and (x, y) != own)
    return rows, list(listed((x, y, grid.get(x, y)) for x, y in cells))


def listed(cells: Iterator[tuple[int, int, Any]]) -> Iterator[str]:
    """A line per thing with a colour: "D at row 1, column 2: yellow door, locked"; walls and floor have none."""
    for x, y, thing in cells:
        if thing is not None and thing.type not in ("wall", "floor", "lava"):
            yield f"{symbol(thing)} at row {y}, column {x}: {name_of(thing)}"


def symbol(thing: Any) -> str:
    if thing is None:
        return EMPTY
    return SYMBOLS.get(str(thing.type), str(thing.type)[0].upper())


def name_of(thing: Any) -> str:
    """A red key; a yellow door, locked."""
    name = f"{thing.color} {thing.type}"
    if thing.type == "door":
        return f"{name}, {'open' if thing.is_open else 'locked' if thing.is_locked else 'closed'}"
    return name
