"""A word problem whose numbers are too large for the head, and a calculator to work it out with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.config.bounds import Count, number
from ragen.env import arithmetic
from ragen.env.calculator.problems import draw_problem
from ragen.env.expression_env import ExpressionEnv
from ragen.env.tools import Tool, one_text
from ragen.seeding import Rng

CALCULATE = Tool(
    name="calculate",
    description="The value of an arithmetic expression with numbers, + - * / and parentheses.",
    parameters=one_text("expression", description="Such as 12 * (3 + 4)."),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CalculatorConfig:
    """The options of the calculator environment."""

    max_number: Annotated[int, "Largest number of a story.", number(lambda x: 9 <= x <= 10**6, "from 9 to 10^6")] = 999
    max_steps: Annotated[Count, "Calls and answers of an episode."] = 4


class CalculatorEnv(ExpressionEnv):
    """The answer is one whole number; the right one gives 1, everything else 0."""

    config_class = CalculatorConfig
    max_tokens = 120
    tool = CALCULATE

    def reset(self, seed: int, member: int = 0) -> str:
        self.problem = draw_problem(seed, max_number=self.config.max_number)
        return self.pose(self.problem.question, self.problem.expression)

    def value_of(self, expression: str) -> str:
        return str(arithmetic.value(expression))

    def notes(self) -> str:
        return "The answer is one whole number, without words."

    def example_answer(self) -> str:
        return str(self.problem.numbers[0] + self.problem.value)

    def sample_text(self, rng: Rng) -> str:
        """A calculation of two of the numbers, asked of the tool or answered with."""
        numbers = self.problem.numbers
        expression = f"{rng.choice(numbers)} {rng.choice('+-*')} {rng.choice(numbers)}"
        if rng.random() < 0.5:
            return self.ask(expression)
        return self.value_of(expression)

    def hint(self) -> str:
        return (
            f"The result is {self.problem.value}." if self.has_result else f"This asks for {self.problem.expression}."
        )
