"""Sudoku: fill the board so that every row, column and box holds each digit once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Annotated, Literal

from ragen.config.bounds import Count
from ragen.env.attempts import AttemptsEnv
from ragen.env.base import StepResult
from ragen.env.sudoku.answer import Placement, read_placements
from ragen.env.sudoku.puzzle import Board, Deduction, Puzzle, candidates, deduce, draw_puzzle, units
from ragen.errors import ConfigError
from ragen.seeding import Rng

FILLED_REWARD = 0.5  # for all cells together; taken back when one is emptied
SOLVED_REWARD = 0.5
FEWEST_GIVENS = {4: 5, 9: 26}
"""Random grids reach these within some tries; puzzles with fewer exist and are rare."""
GIVENS = {4: 8, 9: 40}
"""Where the number is left open."""
MAX_SHOWN = 3
"""Refusals that an observation lists; the others are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SudokuConfig:
    """The options of Sudoku."""

    size: Annotated[Literal[4, 9], "Rows, columns and digits of the board."] = 4
    num_givens: Annotated[int | None, "Digits that are given; null: 8 of 16 cells, or 40 of 81."] = None
    max_placements: Annotated[Count | None, "Digits that an answer may hold; null: as many as a row."] = None
    max_steps: Annotated[Count, "Answers of an episode; the last one ends it."] = 10

    def __post_init__(self) -> None:
        fewest, most = FEWEST_GIVENS[self.size], self.size**2 - 1
        if not fewest <= self.givens <= most:
            raise ConfigError(
                f"sudoku.num_givens is {self.givens}. A board of {self.size}x{self.size} takes {fewest} to {most}: "
                "change num_givens or size."
            )
        needed = math.ceil((self.size**2 - self.givens) / self.placements)
        if self.max_steps < needed:
            raise ConfigError(
                f"sudoku.max_steps is {self.max_steps}. To fill {self.size**2 - self.givens} cells takes {needed} "
                f"answers of {self.placements} digits: raise max_steps, max_placements or num_givens."
            )

    @property
    def givens(self) -> int:
        return GIVENS[self.size] if self.num_givens is None else self.num_givens

    @property
    def placements(self) -> int:
        return self.size if self.max_placements is None else self.max_placements


# The members of a group are reset one after the other on the same puzzle.
cached_puzzle = lru_cache(maxsize=1024)(draw_puzzle)


class SudokuEnv(AttemptsEnv):
    """An answer writes digits into cells, `r1c2=3`. What breaks a rule is refused, everything else is written.

    A digit that breaks no rule may still be wrong: it stays until another one is written over it, or 0. A full board
    has broken no rule and is the solution, so nothing needs to be compared with it.
    """

    config_class = SudokuConfig
    max_tokens = 200

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the puzzle of `seed`; nothing is left to chance after that."""
        return self.load(cached_puzzle(self.config.size, num_givens=self.config.givens, seed=seed))

    def load(self, puzzle: Puzzle) -> str:
        """Start a new episode on a given puzzle; returns the first observation."""
        self.puzzle, self.board, self.num_steps = puzzle, puzzle.givens, 0
        self.said: list[str] = []
        return self.render()

    def step(self, action: str) -> StepResult:
        """Write the digits of an answer one after the other; what is refused is told with the reason."""
        self.count_step()
        before, placements = self.board, read_placements(action)
        self.said = [] if placements else ["Your last answer was refused: write digits as r1c2=3."]
        for index, placement in enumerate(placements or ()):
            is_late = index >= self.config.placements
            reason = f"an answer holds {self.config.placements} at most" if is_late else self.write(placement)
            if reason:
                self.said.append(f"{placement} was refused: {reason}.")
        num_filled = before.count(0) - self.board.count(0)
        share = num_filled / self.puzzle.givens.count(0)
        reward = FILLED_REWARD * share + SOLVED_REWARD * self.is_solved
        return self.result(reward=reward, is_valid=placements is not None, is_effective=self.board != before)

    def write(self, placement: Placement) -> str:
        """Write a digit, or say why not."""
        size, row, col, digit = self.puzzle.size, placement.row, placement.col, placement.digit
        if not (1 <= row <= size and 1 <= col <= size):
            return "there is no such cell"
        if digit > size:
            return f"digits are 1 to {size}"
        cell = (row - 1) * size + col - 1
        if self.puzzle.givens[cell]:
            return "the cell is given"
        emptied = with_digit(self.board, cell, 0)
        if digit and digit not in candidates(emptied, cell, size):
            table = units(size)
            holding = next(unit for unit in table.of_cell[cell] if digit in (emptied[c] for c in table.cells[unit]))
            return f"{table.names[holding]} has a {digit}"
        self.board = with_digit(emptied, cell, digit)
        return ""

    @property
    def is_solved(self) -> bool:
        return 0 not in self.board

    def render(self) -> str:
        """A line per row, and what was refused last."""
        size = self.puzzle.size
        rows = [self.board[start : start + size] for start in range(0, size * size, size)]
        lines = [f"r{number}: {' '.join(str(digit or '.') for digit in row)}" for number, row in enumerate(rows, 1)]
        more = len(self.said) - MAX_SHOWN
        return "\n".join([*lines, *self.said[:MAX_SHOWN], *([f"{more} more were refused."] if more > 0 else [])])

    def notes(self) -> str:
        size, box = self.puzzle.size, units(self.puzzle.size).box
        return (
            f"Each row, column and {box}x{box} box holds the digits 1 to {size} once. Rows are r1 to r{size}, columns "
            f"c1 to c{size}; a dot is an empty cell. An answer writes up to {self.config.placements} digits, as "
            "r1c2=3; 0 empties a cell."
        )

    def example_answer(self) -> str:
        """Wrong digits for two of the cells that are to be filled."""
        rng, size = Rng("example", self.level_content()), self.puzzle.size
        cells = [cell for cell, digit in enumerate(self.puzzle.givens) if not digit]
        chosen = rng.sample(cells, min(2, len(cells), self.config.placements))
        placed = []
        for cell in chosen:
            wrong = [digit for digit in range(1, size + 1) if digit != self.puzzle.solution[cell]]
            placed.append(self.spell(cell, rng.choice(wrong)))
        return " ".join(placed)

    def spell(self, cell: int, digit: int) -> str:
        row, col = divmod(cell, self.puzzle.size)
        return str(Placement(row + 1, col + 1, digit))

    def sample_text(self, rng: Rng) -> str:
        """Random digits for random empty cells."""
        cells = [cell for cell, digit in enumerate(self.board) if not digit]
        chosen = rng.sample(cells, min(len(cells), self.config.placements))
        return " ".join(self.spell(cell, 1 + rng.below(self.puzzle.size)) for cell in chosen)

    def level_content(self) -> str:
        return "".join(map(str, self.puzzle.givens))

    def mistakes(self) -> list[int]:
        """Cells with a digit that is not that of the solution."""
        return [cell for cell, digit in enumerate(self.board) if digit and digit != self.puzzle.solution[cell]]

    def deductions(self) -> Iterator[Deduction]:
        """How the board is filled from here, once its mistakes are emptied."""
        board = self.board
        for cell in self.mistakes():
            board = with_digit(board, cell, 0)
        while 0 in board:
            found = deduce(board, self.puzzle)
            yield found
            board = with_digit(board, found.cell, found.digit)

    def solve(self) -> list[str] | None:
        """Answers that fill the board: wrong digits are emptied, then each digit is written once it can be told."""
        if self.is_solved:
            return None
        words = [self.spell(cell, 0) for cell in self.mistakes()]
        words += [self.spell(found.cell, found.digit) for found in self.deductions()]
        per_answer = self.config.placements
        return [" ".join(words[start : start + per_answer]) for start in range(0, len(words), per_answer)]

    def hint(self) -> str:
        """Why the next digits are what they are, or which digit is wrong."""
        if self.is_solved:
            return ""
        wrong = (f"{self.spell(cell, self.board[cell])} is wrong" for cell in self.mistakes())
        reasons = (f"{self.spell(found.cell, found.digit)[:-2]} {found.reason}" for found in self.deductions())
        return f"{', '.join(islice(chain(wrong, reasons), self.config.placements))}."


def with_digit(board: Board, cell: int, digit: int) -> Board:
    return (*board[:cell], digit, *board[cell + 1 :])
