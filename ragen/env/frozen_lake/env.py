"""FrozenLake: cross the ice to the goal without falling into a hole; moves may slip sideways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from ragen.config.bounds import Share, number
from ragen.env.base import StepResult, step_info
from ragen.env.bits import moved, to_row_col
from ragen.env.board import DISTINCT, BoardEnv, ObservationFormat, Symbol, offset_in_words
from ragen.env.frozen_lake.lake import ACTIONS, Lake, generate_lake, solve
from ragen.seeding import Rng

SIDEWAYS = {1: (2, 4), 2: (1, 3), 3: (2, 4), 4: (1, 3)}
"""Action id -> the two actions at right angles to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenLakeSymbols:
    """The character of each kind of cell."""

    player: Symbol = "P"
    frozen: Symbol = "_"
    hole: Symbol = "O"
    goal: Symbol = "G"
    player_in_hole: Symbol = "X"
    player_on_goal: Symbol = "√"


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenLakeConfig:
    """The options of FrozenLake."""

    size: Annotated[int, "Rows and columns of the board.", number(lambda x: 2 <= x <= 64, "from 2 to 64")] = 4
    p: Annotated[Share, "Probability that a cell is ice and not a hole."] = 0.9
    is_slippery: Annotated[bool, "Moves may slip sideways; False makes every move go as intended."] = True
    success_rate: Annotated[Share, "Probability that a move on slippery ice goes as intended."] = 0.8
    observation_format: ObservationFormat = "grid"
    symbols: Annotated[FrozenLakeSymbols, "The character of each kind of cell.", DISTINCT] = FrozenLakeSymbols()


# The members of a group are reset one after the other on the same level.
cached_lake = lru_cache(maxsize=1024)(generate_lake)


class FrozenLakeEnv(BoardEnv):
    """Walk on ice; the episode ends on the goal or in a hole and has no step limit of its own."""

    config_class = FrozenLakeConfig
    action_names = ACTIONS
    picture = "ragen.env.frozen_lake.picture"

    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode: the lake follows from `seed`, the slips from `seed` and `member`."""
        self.slips = Rng(seed, "slip", member)
        return self.load(cached_lake(self.config.size, p=self.config.p, seed=seed))

    def load(self, lake: Lake) -> str:
        """Start a new episode on a given lake; returns the first observation."""
        self.set_size(lake.size, lake.size, lake.stride)
        self.lake, self.player = lake, lake.start
        return self.render()

    def step(self, action: int) -> StepResult:
        """Move, perhaps sideways; an unknown action id leaves the state and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        player = self.player
        if action in ACTIONS:
            # Off the board lies no cell: the player stays.
            self.player = moved(player, self.by_action[self.slip(action)]) & self.board or player
        return StepResult(
            observation=self.render(),
            reward=float(self.is_solved),
            is_done=self.is_done,
            info=step_info(is_valid=action in ACTIONS, is_effective=self.player != player, is_success=self.is_solved),
        )

    def slip(self, action: int) -> int:
        """The action that really happens: the intended one, or one of the two beside it with equal probability."""
        if not self.config.is_slippery:
            return action
        draw, rate = self.slips.random(), self.config.success_rate
        if draw < rate:
            return action
        return SIDEWAYS[action][draw >= rate + (1 - rate) / 2]

    @property
    def is_solved(self) -> bool:
        return self.player == self.lake.goal

    @property
    def is_done(self) -> bool:
        return self.is_solved or not self.player & self.lake.ice

    def kind(self, cell: int) -> str:
        """What is on a cell, as the name of its symbol."""
        lake = self.lake
        if cell & self.player:
            return "player_on_goal" if cell & lake.goal else "player" if cell & lake.ice else "player_in_hole"
        return "goal" if cell & lake.goal else "frozen" if cell & lake.ice else "hole"

    def listed(self) -> dict[str, int]:
        player = self.kind(self.player).replace("_", " ").capitalize()
        lake = self.lake
        return {"Start": lake.start, "Goal": lake.goal, player: self.player, "Holes": self.board & ~lake.ice}

    def level_content(self) -> str:
        """The lake, however it is shown."""
        lake = self.lake
        return f"{lake.size} {lake.ice} {lake.start} {lake.goal}"

    def notes(self) -> str:
        """Board size, symbols, how cells are counted and how slippery the ice is, for this configuration."""
        cfg, notes = self.config, super().notes()
        if cfg.is_slippery and cfg.success_rate < 1:
            notes += (
                f" The ice is slippery: a move goes as intended with probability {cfg.success_rate:g}, else sideways."
            )
        return notes

    def solve(self) -> list[int] | None:
        """A shortest way from the present state if no move slips; ask again after each slip."""
        return solve(self.lake, self.player)

    def hint(self) -> str:
        """Where the goal is, seen from the player, and which neighbours are holes."""
        if self.is_done:
            return ""
        here, goal = (to_row_col(cell, self.stride) for cell in (self.player, self.lake.goal))
        holes = self.board & ~self.lake.ice
        beside = [
            ACTIONS[action].lower() for action, move in self.by_action.items() if moved(self.player, move) & holes
        ]
        return f"Goal {offset_in_words(here, goal)}." + (f" Hole {', '.join(beside)}." if beside else "")
