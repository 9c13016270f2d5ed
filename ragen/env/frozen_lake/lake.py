"""FrozenLake levels: ice with holes and a way from the start to the goal."""

from __future__ import annotations

from dataclasses import dataclass

from ragen.env.bits import flood, moves_by_action, shortest_walk
from ragen.errors import ConfigError
from ragen.seeding import Rng

ACTIONS = {1: "Left", 2: "Down", 3: "Right", 4: "Up"}
MAX_ATTEMPTS = 1000
"""Lakes drawn before a configuration counts as impossible."""


@dataclass(frozen=True, slots=True)
class Lake:
    """One level; sets of cells are integers with one spare column, see `ragen.env.bits`."""

    size: int
    ice: int
    """Every cell that is not a hole, start and goal included."""
    start: int
    goal: int

    @property
    def stride(self) -> int:
        """Bits per row: the spare column keeps walks from wrapping into the next row."""
        return self.size + 1


def generate_lake(size: int, *, p: float, seed: int) -> Lake:
    """The lake of a seed: each cell is ice with probability `p`, start and goal are drawn, and a way exists."""
    stride = size + 1
    cells = [1 << (row * stride + col) for row in range(size) for col in range(size)]
    for attempt in range(MAX_ATTEMPTS):
        rng = Rng(seed, "frozen_lake", attempt)
        start, goal = rng.sample(cells, 2)
        ice = sum(cell for cell in cells if rng.random() < p) | start | goal
        if flood(start, ice, stride)[1] & goal:
            return Lake(size, ice, start, goal)
    raise ConfigError(
        f"frozen_lake: no lake of size {size} with a way to the goal was found in {MAX_ATTEMPTS} tries at p {p}. "
        "Use a larger p or a smaller size."
    )


def solve(lake: Lake, player: int) -> list[int] | None:
    """Action ids of a shortest way to the goal if no move slips; None from a hole."""
    if not player & lake.ice:
        return None
    return shortest_walk(player, lake.goal, lake.ice, lake.stride, moves_by_action(ACTIONS, lake.stride))
