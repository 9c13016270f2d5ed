"""Countdown: an arithmetic expression that uses every given number once and has the target as its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.config.bounds import Count, number
from ragen.env.arithmetic import Refused, evaluate, numbers, parse
from ragen.env.attempts import AttemptsEnv
from ragen.env.base import StepResult
from ragen.env.countdown.puzzle import Puzzle, draw_expression, draw_puzzle, solve
from ragen.seeding import Rng


@dataclass(frozen=True, kw_only=True, slots=True)
class CountdownConfig:
    """The options of Countdown."""

    num_numbers: Annotated[int, "Numbers of a puzzle.", number(lambda x: 2 <= x <= 6, "from 2 to 6")] = 3
    max_number: Annotated[int, "Largest number.", number(lambda x: 2 <= x <= 1000, "from 2 to 1000")] = 20
    max_target: Annotated[int, "Largest target.", number(lambda x: 2 <= x <= 10_000, "from 2 to 10,000")] = 100
    max_steps: Annotated[Count, "Answers of an episode; the last one ends it."] = 3


class CountdownEnv(AttemptsEnv):
    """An answer is an expression with + - * / and parentheses; the right one gives 1, everything else 0."""

    config_class = CountdownConfig
    max_tokens = 200

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the puzzle of `seed`; nothing is left to chance after that."""
        cfg = self.config
        puzzle = draw_puzzle(cfg.num_numbers, max_number=cfg.max_number, max_target=cfg.max_target, seed=seed)
        return self.load(puzzle)

    def load(self, puzzle: Puzzle) -> str:
        """Start a new episode on a given puzzle."""
        self.puzzle, self.num_steps, self.said, self.is_solved = puzzle, 0, "", False
        return self.render()

    def step(self, action: str) -> StepResult:
        """Judge an expression; one that is wrong or cannot be read is answered with the reason."""
        self.count_step()
        said, self.said = self.said, self.judge(action)
        self.is_solved = not self.said
        is_valid = self.is_solved or self.said.startswith(RESULT)
        return self.result(reward=float(self.is_solved), is_valid=is_valid, is_effective=self.said != said)

    def judge(self, text: str) -> str:
        """What is wrong with an answer; empty where it is right."""
        try:
            tree = parse(text)
            used = sorted(numbers(tree))
            if used != sorted(self.puzzle.numbers):
                return f"Your last answer was refused: it must use each of {self.listed} exactly once."
            value = evaluate(tree)
        except Refused as reason:
            return f"Your last answer was refused: {reason}."
        return "" if value == self.puzzle.target else f"{RESULT} {value}, not {self.puzzle.target}."

    @property
    def listed(self) -> str:
        return ", ".join(map(str, self.puzzle.numbers))

    def render(self) -> str:
        lines = [f"Numbers: {self.listed}. Target: {self.puzzle.target}."]
        return "\n".join([*lines, self.said] if self.said else lines)

    def notes(self) -> str:
        return "An answer is an expression with +, -, *, / and parentheses. It uses every number exactly once."

    def example_answer(self) -> str:
        """A random expression of the level's numbers that misses the target."""
        rng = Rng("example", self.level_content())
        for _ in range(MAX_EXAMPLES):
            term = draw_expression(self.puzzle.numbers, rng)
            if term.value != self.puzzle.target:
                return term.text
        return ""  # every expression of these numbers is a solution

    def sample_text(self, rng: Rng) -> str:
        return draw_expression(self.puzzle.numbers, rng).text

    def level_content(self) -> str:
        """The numbers in any order, and the target."""
        return f"{sorted(self.puzzle.numbers)} {self.puzzle.target}"

    def solve(self) -> list[str] | None:
        if self.is_solved:
            return None
        term = solve(self.puzzle)
        return [term.text] if term else None

    def hint(self) -> str:
        """The calculations of the solution, one after the other."""
        term = solve(self.puzzle)
        return f"{', '.join(term.steps)}." if term else ""


RESULT = "Your last answer gives"
MAX_EXAMPLES = 100
"""Draws of an example that is no solution."""
