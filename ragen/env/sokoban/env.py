"""Sokoban: push every box onto a target."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from ragen.env.base import Env, StepResult
from ragen.env.bits import moved, row_cols, to_row_col
from ragen.env.board import (
    FORMATS,
    ObservationFormat,
    board_notes,
    coordinate_text,
    grid_text,
    offset_in_words,
    require_format,
)
from ragen.env.options import require, require_symbols
from ragen.env.sokoban.room import Level, generate_level
from ragen.env.sokoban.solver import ACTIONS, first_push, moves_by_action, solve

if TYPE_CHECKING:
    import numpy as np

STEP_REWARD = -0.1
BOX_REWARD = 1.0  # when a box reaches a target; taken back when one leaves
SOLVED_REWARD = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SokobanSymbols:
    """The character of each kind of cell; the order is that of the cell codes 0 to 6."""

    wall: str = "#"
    floor: str = "_"
    target: str = "O"
    box_on_target: str = "√"
    box: str = "X"
    player: str = "P"
    player_on_target: str = "S"


@dataclass(frozen=True, kw_only=True, slots=True)
class SokobanConfig:
    """The options of Sokoban."""

    dim_x: Annotated[int, "Rows of the room, the outer wall included."] = 6
    dim_y: Annotated[int, "Columns of the room, the outer wall included."] = 6
    num_boxes: Annotated[int, "Boxes, and as many targets."] = 3
    max_steps: Annotated[int, "The episode ends after so many actions."] = 100
    search_depth: Annotated[
        int, "Most player moves, pushes included, by which the boxes are moved off their targets."
    ] = 300
    observation_format: Annotated[ObservationFormat, "Rows of symbols, coordinates, or both."] = "grid"
    symbols: Annotated[SokobanSymbols, "The character of each kind of cell."] = field(default_factory=SokobanSymbols)

    def __post_init__(self) -> None:
        for name in ("dim_x", "dim_y"):
            require(3 <= getattr(self, name) <= 64, f"sokoban.{name}", getattr(self, name), "Use 3 to 64.")
        room = (self.dim_x - 2) * (self.dim_y - 2) - 2  # one cell for the player, one to move in
        remedy = f"A {self.dim_x}x{self.dim_y} room has space for 1 to {room} boxes: change num_boxes, dim_x or dim_y."
        require(1 <= self.num_boxes <= room, "sokoban.num_boxes", self.num_boxes, remedy)
        require(self.max_steps >= 1, "sokoban.max_steps", self.max_steps, "Use 1 or more.")
        remedy = f"Each of the {self.num_boxes} boxes needs a move: use {self.num_boxes} or more."
        require(self.search_depth >= self.num_boxes, "sokoban.search_depth", self.search_depth, remedy)
        require_format("sokoban.observation_format", self.observation_format)
        require_symbols("sokoban.symbols", self.symbols)


# The members of a group are reset one after the other on the same level.
cached_level = lru_cache(maxsize=1024)(generate_level)


class SokobanEnv(Env):
    """Push-or-move Sokoban on levels that can be solved."""

    config_class = SokobanConfig

    def __init__(self, config: SokobanConfig | None = None) -> None:
        super().__init__(config or SokobanConfig())
        self.by_action = moves_by_action(self.config.dim_y)
        self.load(self.make_level(seed=0))  # also proves, before any training, that such levels exist

    def make_level(self, seed: int) -> Level:
        """The level of a seed."""
        cfg = self.config
        return cached_level(cfg.dim_x, cfg.dim_y, num_boxes=cfg.num_boxes, search_depth=cfg.search_depth, seed=seed)

    def load(self, level: Level) -> str:
        """Start a new episode on a given level; returns the first observation."""
        self.level = level
        self.boxes, self.player = level.boxes, level.player
        self.num_steps = 0
        return self.render()

    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode on the level of `seed`; Sokoban has no noise, so `member` changes nothing."""
        return self.load(self.make_level(seed))

    def step(self, action: int) -> StepResult:
        """Push or move; an id that is no action costs a step and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        placed, player = self.num_placed, self.player
        if action in self.by_action:
            self.push_or_move(action)
        self.num_steps += 1
        return StepResult(
            observation=self.render(),
            reward=STEP_REWARD + BOX_REWARD * (self.num_placed - placed) + SOLVED_REWARD * self.is_solved,
            is_done=self.is_done,
            info={
                "action_is_valid": float(action in self.by_action),
                "action_is_effective": float(self.player != player),
                "success": float(self.is_solved),
            },
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

    @property
    def actions(self) -> dict[int, str]:
        return dict(ACTIONS)

    def codes(self) -> list[list[int]]:
        """Cell codes by row: 0 wall, 1 floor, 2 target, 3 box on target, 4 box, 5 player, 6 player on target."""
        level, cells = self.level, []
        for index in range(level.rows * level.columns):
            cell = 1 << index
            on_target = bool(cell & level.targets)
            if not cell & level.floor:
                cells.append(0)
            elif cell & self.player:
                cells.append(6 if on_target else 5)
            elif cell & self.boxes:
                cells.append(3 if on_target else 4)
            else:
                cells.append(2 if on_target else 1)
        return [cells[start : start + level.columns] for start in range(0, len(cells), level.columns)]

    def render(self) -> str:
        """The room in the configured observation format."""
        cfg, level = self.config, self.level
        s = cfg.symbols
        symbols = (s.wall, s.floor, s.target, s.box_on_target, s.box, s.player, s.player_on_target)
        grid = grid_text((symbols[code] for code in row) for row in self.codes())
        if cfg.observation_format == "grid":
            return grid
        targets = level.targets
        kinds = {
            "Targets": targets & ~self.boxes & ~self.player,
            "Boxes": self.boxes & ~targets,
            "Boxes on target": self.boxes & targets,
            "Player": self.player & ~targets,
            "Player on target": self.player & targets,
        }
        listed = [(kind, row_cols(cells, level.columns)) for kind, cells in kinds.items()]
        return FORMATS[cfg.observation_format](grid, coordinate_text(level.rows, level.columns, listed))

    def notes(self) -> str:
        """Board size, symbols and how cells are counted, for this configuration."""
        cfg = self.config
        return board_notes(cfg.symbols, cfg.dim_x, cfg.dim_y, cfg.observation_format)

    def level_content(self) -> str:
        """The room; coordinates do not show its walls."""
        level = self.level
        return f"{level.rows} {level.columns} {level.floor} {level.targets} {level.boxes} {level.player}"

    def current(self) -> Level:
        """The present state as a level of its own."""
        return replace(self.level, boxes=self.boxes, player=self.player)

    def solve(self) -> list[int] | None:
        """A solution with the fewest moves from the present state; None when the level is lost."""
        solution = solve(self.current())
        return None if solution is None else list(solution)

    def hint(self) -> str:
        """Where the next box to push is, seen from the player, and where it goes, seen from the box."""
        now = self.current()
        solution = solve(now)
        if not solution:
            return ""
        player, box, end = (to_row_col(cell, now.columns) for cell in (now.player, *first_push(now, solution)))
        return f"Box {offset_in_words(player, box)}. Target {offset_in_words(box, end)}."

    def render_rgb(self) -> np.ndarray:
        """The room as a picture, 16 pixels a cell."""
        from ragen.env.sokoban.picture import draw_room

        return draw_room(self.codes())
