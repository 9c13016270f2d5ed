"""A puzzle on texts or numbers, and a tool that gives the value of a Python expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.config.bounds import Count, number
from ragen.env.expression_env import ExpressionEnv
from ragen.env.python_expression import expression as walker
from ragen.env.python_expression.problems import SYLLABLES, draw_problem
from ragen.env.tools import Tool, one_text
from ragen.seeding import Rng

PYTHON = Tool(
    name="python",
    description="The value of a Python expression: no statements, no imports, no attributes but methods of texts.",
    parameters=one_text("expression", description='Such as len("word") + 1.'),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonExpressionConfig:
    """The options of the environment of Python expressions."""

    size: Annotated[int, "How long texts and lists are.", number(lambda x: 2 <= x <= 20, "from 2 to 20")] = 4
    max_steps: Annotated[Count, "Calls and answers of an episode."] = 4


class PythonExpressionEnv(ExpressionEnv):
    """The answer is a text or a number as Python prints it; the right one gives 1, everything else 0."""

    config_class = PythonExpressionConfig
    max_tokens = 160
    tool = PYTHON

    def reset(self, seed: int, member: int = 0) -> str:
        problem = draw_problem(seed, size=self.config.size)
        return self.pose(problem.question, problem.expression)

    def value_of(self, expression: str) -> str:
        return str(walker.value(expression))

    def notes(self) -> str:
        return "The answer is one word or one number, without quotes."

    def example_answer(self) -> str:
        return f"{self.value}7" if self.value.isdigit() else f"{self.value}{SYLLABLES[0]}"

    def sample_text(self, rng: Rng) -> str:
        """The length of the question, asked of the tool, or a small number."""
        if rng.random() < 0.5:
            return self.ask(f'len("{rng.choice(SYLLABLES)}")')
        return str(rng.below(20))

    def hint(self) -> str:
        return f"The result is {self.value}." if self.has_result else "Python can work this out."
