"""Sokoban: push every box onto a target."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated

from ragen.config.bounds import Count, number
from ragen.env.base import StepResult, step_info
from ragen.env.bits import moved, to_row_col
from ragen.env.board import DISTINCT, BoardEnv, ObservationFormat, Symbol, offset_in_words
from ragen.env.sokoban.room import Level, generate_level
from ragen.env.sokoban.solver import ACTIONS, MAX_STATES, Search, first_push, search
from ragen.env.sokoban.xsb import Split, content_hash, read_levels
from ragen.errors import ConfigError
from ragen.seeding import fixed_hash

logger = logging.getLogger(__name__)

BOX_REWARD = 1.0  # when a box reaches a target; taken back when one leaves
SOLVED_REWARD = 10.0

Side = Annotated[int, number(lambda x: 3 <= x <= 64, "from 3 to 64")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SokobanSymbols:
    """The character of each kind of cell."""

    wall: Symbol = "#"
    floor: Symbol = "_"
    target: Symbol = "O"
    box_on_target: Symbol = "√"
    box: Symbol = "X"
    player: Symbol = "P"
    player_on_target: Symbol = "S"


@dataclass(frozen=True, kw_only=True, slots=True)
class SokobanConfig:
    """The options of Sokoban."""

    dim_x: Annotated[Side, "Rows of the room, the outer wall included."] = 6
    dim_y: Annotated[Side, "Columns of the room, the outer wall included."] = 6
    num_boxes: Annotated[int, "Boxes, and as many targets."] = 3
    max_steps: Annotated[Count, "The episode ends after so many actions."] = 100
    step_reward: Annotated[float, "Reward of each action.", number(lambda x: -10 <= x <= 0, "from -10 to 0")] = -0.1
    search_depth: Annotated[
        int, "Most player moves, pushes included, by which the boxes are moved off their targets."
    ] = 300
    levels_file: Annotated[
        str | None, "XSB file to play levels from; dim_x, dim_y, num_boxes and search_depth do not count then."
    ] = None
    split: Annotated[Split, "Levels of the file: all, a fifth of them to test on, or the others to train on."] = "all"
    solver_states: Annotated[Count, "States after which the solver gives up a level."] = MAX_STATES
    observation_format: ObservationFormat = "grid"
    symbols: Annotated[SokobanSymbols, "The character of each kind of cell.", DISTINCT] = SokobanSymbols()

    def __post_init__(self) -> None:
        if self.levels_file is not None:
            # A wrong file is refused where options are, before a model is loaded.
            read_levels(self.levels_file, self.split)
        elif self.split != "all":
            raise ConfigError(
                f"sokoban.split is {self.split!r}, which chooses from a file of levels. Set levels_file, or split: all."
            )
        most = (self.dim_x - 2) * (self.dim_y - 2) - 2  # one cell for the player, one to move in
        if not 1 <= self.num_boxes <= most:
            raise ConfigError(
                f"sokoban.num_boxes is {self.num_boxes}. A {self.dim_x}x{self.dim_y} room has space for 1 to {most} "
                "boxes: change num_boxes, dim_x or dim_y."
            )
        if self.search_depth < self.num_boxes:
            raise ConfigError(
                f"sokoban.search_depth is {self.search_depth}. Each of the {self.num_boxes} boxes needs a move: use "
                f"{self.num_boxes} or more."
            )


# The members of a group are reset one after the other on the same level.
cached_level = lru_cache(maxsize=1024)(generate_level)


class SokobanEnv(BoardEnv):
    """Push-or-move Sokoban on levels that can be solved."""

    config_class = SokobanConfig
    action_names = ACTIONS
    picture = "ragen.env.sokoban.picture"

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Those of the file; empty where levels are drawn."""
        return read_levels(self.config.levels_file, self.config.split) if self.config.levels_file else ()

    @classmethod
    def data_facts(cls, config: SokobanConfig) -> dict[str, str]:
        if config.levels_file is None:
            return {}
        levels = read_levels(config.levels_file, config.split)
        return {"levels_file": f"{len(levels)} levels, hash {fixed_hash(*map(content_hash, levels)):x}"}

    def load(self, level: Level) -> str:
        """Start a new episode on a given level; returns the first observation."""
        self.set_size(level.rows, level.columns, level.columns)
        self.level = level
        self.boxes, self.player = level.boxes, level.player
        self.num_steps = 0
        return self.render()

    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode on the level of `seed`; Sokoban has no noise, so `member` changes nothing.

        The levels of a file follow each other, and begin again at its end.
        """
        if self.levels:
            return self.load(self.levels[seed % len(self.levels)])
        cfg = self.config
        sizes = {"num_boxes": cfg.num_boxes, "search_depth": cfg.search_depth}
        return self.load(cached_level(cfg.dim_x, cfg.dim_y, seed=seed, **sizes))

    def step(self, action: int) -> StepResult:
        """Push or move; an unknown action id costs a step and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        placed, player = self.num_placed, self.player
        if action in self.by_action:
            self.push_or_move(action)
        self.num_steps += 1
        return StepResult(
            observation=self.render(),
            reward=self.config.step_reward + BOX_REWARD * (self.num_placed - placed) + SOLVED_REWARD * self.is_solved,
            is_done=self.is_done,
            info=step_info(
                is_valid=action in self.by_action, is_effective=self.player != player, is_success=self.is_solved
            ),
        )

    def push_or_move(self, action: int) -> None:
        """Move one cell; a box ahead is pushed if the cell behind it is free, else nothing happens."""
        ahead = moved(self.player, self.by_action[action])
        free = self.level.floor & ~self.boxes
        if ahead & self.boxes and (behind := moved(ahead, self.by_action[action]) & free):
            self.boxes ^= ahead | behind
        elif not ahead & free:
            return
        self.player = ahead

    @property
    def num_placed(self) -> int:
        """Boxes that stand on a target."""
        return (self.boxes & self.level.targets).bit_count()

    @property
    def is_solved(self) -> bool:
        return self.boxes == self.level.targets

    @property
    def is_done(self) -> bool:
        return self.is_solved or self.num_steps >= self.config.max_steps

    def kind(self, cell: int) -> str:
        on_target = "_on_target" if cell & self.level.targets else ""
        if cell & self.player:
            return "player" + on_target
        if cell & self.boxes:
            return "box" + on_target
        return "wall" if not cell & self.level.floor else "target" if on_target else "floor"

    def listed(self) -> dict[str, int]:
        targets = self.level.targets
        return {
            "Targets": targets & ~self.boxes & ~self.player,
            "Boxes": self.boxes & ~targets,
            "Boxes on target": self.boxes & targets,
            "Player": self.player & ~targets,
            "Player on target": self.player & targets,
        }

    def level_content(self) -> str:
        """The room; coordinates do not show its walls."""
        level = self.level
        return f"{level.rows} {level.columns} {level.floor} {level.targets} {level.boxes} {level.player}"

    def current(self) -> Level:
        """The present state as a level of its own."""
        return replace(self.level, boxes=self.boxes, player=self.player)

    def search(self) -> Search:
        """The solver's search from the present state; that it gave up is said once."""
        found = search(self.current(), self.config.solver_states)
        if found.is_cut:
            report_limit(self.config.solver_states)
        return found

    def solve(self) -> list[int] | None:
        """A solution with the fewest moves from the present state; None when it is lost or the search gave up."""
        actions = self.search().actions
        return None if actions is None else list(actions)

    def hint(self) -> str:
        """Where the next box to push is, seen from the player, and where it goes, seen from the box."""
        now, found = self.current(), self.search()
        if found.is_cut:
            return f"No solution found in {self.config.solver_states} states."
        if not found.actions:
            return ""
        player, box, end = (to_row_col(cell, now.columns) for cell in (now.player, *first_push(now, found.actions)))
        return f"Box {offset_in_words(player, box)}. Target {offset_in_words(box, end)}."


@lru_cache(maxsize=16)  # once for a limit
def report_limit(max_states: int) -> None:
    logger.warning(
        "sokoban: the solver gave up a level after %d states, and counts it as one without a solution; there may be "
        "more. A larger solver_states searches further, at about 50 microseconds a state.",
        max_states,
    )
