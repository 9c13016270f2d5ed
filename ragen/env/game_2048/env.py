"""2048: slide tiles, merge equal ones, reach the target tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from ragen.config.bounds import Bound, Count, CountOrZero, number
from ragen.env.base import Env, StartedEnv, StepResult, step_info
from ragen.env.game_2048.board import ACTIONS, Board, add_tile, largest, moves, slide
from ragen.env.game_2048.player import best_move
from ragen.errors import ConfigError
from ragen.seeding import Rng

SOLVED_REWARD = 1.0
MAX_ATTEMPTS = 1000
"""Starts drawn before a number of moves counts as impossible."""
POWER_OF_TWO = Bound(lambda x: 8 <= x <= 131_072 and x & (x - 1) == 0, "Use a power of two from 8 to 131072.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Game2048Config:
    """The options of 2048."""

    size: Annotated[int, "Rows and columns of the board.", number(lambda x: 2 <= x <= 8, "from 2 to 8")] = 4
    target: Annotated[int, "The tile that ends the game with success.", POWER_OF_TWO] = 128
    start_moves: Annotated[
        CountOrZero, "Random moves, the same for the whole group, before the episode begins; more make more levels."
    ] = 0
    max_steps: Annotated[Count, "The episode ends after so many actions."] = 100


def draw_start(size: int, *, target: int, start_moves: int, seed: int) -> Board:
    """The first board of a seed: two tiles, then random moves; neither lost nor with the target on it."""
    for attempt in range(MAX_ATTEMPTS):
        rng = Rng(seed, "2048", attempt)
        board: Board = ((0,) * size,) * size
        board = add_tile(add_tile(board, rng), rng)
        for _ in range(start_moves):
            if not (possible := moves(board)):
                break
            board = add_tile(possible[rng.choice(list(possible))][0], rng)
        if moves(board) and largest(board) < target:
            return board
    raise ConfigError(
        f"game_2048.start_moves is {start_moves}: {MAX_ATTEMPTS} games of {size}x{size} were lost, or at {target}, by "
        "then. Use fewer moves, a larger size or a larger target."
    )


# The members of a group are reset one after the other on the same board.
cached_start = lru_cache(maxsize=1024)(draw_start)


class Game2048Env(StartedEnv, Env):
    """Tiles slide as far as they can; equal ones that meet become one of twice the number; a new tile follows."""

    config_class = Game2048Config

    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode: the board follows from `seed`, the tiles that come from `seed` and `member`."""
        cfg = self.config
        self.seed, self.member = seed, member
        return self.load(cached_start(cfg.size, target=cfg.target, start_moves=cfg.start_moves, seed=seed))

    def load(self, board: Board) -> str:
        """Start a new episode on a given board; returns the first observation."""
        self.start = self.board = board
        self.num_steps = self.num_tiles = 0
        return self.render()

    def step(self, action: int) -> StepResult:
        """Slide the tiles; where nothing moves no tile comes. An unknown action id is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        after, merged = slide(self.board, action) if action in ACTIONS else (self.board, ())
        is_effective = after != self.board
        if is_effective:
            self.board = self.followed(after, self.num_tiles)
            self.num_tiles += 1
        self.num_steps += 1
        is_over = self.is_solved or self.is_lost
        return StepResult(
            observation=self.render(),
            reward=sum(merged) / self.full_score + SOLVED_REWARD * self.is_solved,
            terminated=is_over,
            truncated=self.is_done and not is_over,
            info=step_info(is_valid=action in ACTIONS, is_effective=is_effective, is_success=self.is_solved),
        )

    def followed(self, board: Board, index: int) -> Board:
        """A board with the tile that comes after the move number `index`."""
        return add_tile(board, Rng(self.seed, "tile", self.member, index))

    @property
    def full_score(self) -> float:
        """Points (sums of merged tiles) that the target is worth when it is made of twos alone.

        8: two fours of 4 points each and 8 points for itself, 8 * (3 - 1) = 16
        """
        return self.config.target * (math.log2(self.config.target) - 1)

    @property
    def is_solved(self) -> bool:
        return largest(self.board) >= self.config.target

    @property
    def is_lost(self) -> bool:
        return not moves(self.board)

    @property
    def is_done(self) -> bool:
        return self.is_solved or self.is_lost or self.num_steps >= self.config.max_steps

    @property
    def actions(self) -> dict[int, str]:
        return dict(ACTIONS)

    def render(self) -> str:
        """Rows of numbers, a dot for an empty cell, columns in line."""
        cells = [[str(tile) if tile else "." for tile in row] for row in self.board]
        width = max(len(cell) for row in cells for cell in row)
        return "\n".join(" ".join(cell.rjust(width) for cell in row) for row in cells)

    def notes(self) -> str:
        cfg = self.config
        return (
            f"The board has {cfg.size} rows and {cfg.size} columns; a dot is an empty cell. All tiles slide one way, "
            "and equal ones that meet become one of twice the number. Then a 2 or a 4 comes on a random empty cell. "
            f"Target: {cfg.target}."
        )

    def level_content(self) -> str:
        """The first board; the tiles that come are chance."""
        return f"{self.config.target} {self.start}"

    def solve(self) -> list[int] | None:
        """The moves of the reference player (player.py) from here, with the tiles that will come; None at the end.

        Each move is chosen from the board of that moment alone, but the tiles between are those of this episode: ask
        again where other actions were taken. The player may lose, and then its moves end with the game.
        """
        if self.is_done:
            return None
        board, plan = self.board, []
        while largest(board) < self.config.target and (action := best_move(board)) is not None:
            board = self.followed(slide(board, action)[0], self.num_tiles + len(plan))
            plan.append(action)
        return plan

    def hint(self) -> str:
        """What the next move of the reference player merges."""
        action = None if self.is_done else best_move(self.board)
        if action is None:
            return ""
        merged = slide(self.board, action)[1]
        return f"{ACTIONS[action]} makes {', '.join(map(str, merged))}." if merged else f"{ACTIONS[action]} makes room."
