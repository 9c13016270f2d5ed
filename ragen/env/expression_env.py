"""Problems whose answer is the value of one expression, with a tool that works expressions out.

Tested in tests/env/test_calculator_env.py and tests/env/test_python_expression_env.py.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ragen.env.base import StartedEnv
from ragen.env.tool_env import ToolEnv
from ragen.env.tools import Tool, ToolCall


class Problem(Protocol):
    """A question and the expression that answers it."""

    @property
    def question(self) -> str: ...
    @property
    def expression(self) -> str: ...


class ExpressionEnv(StartedEnv, ToolEnv):
    """A subclass has the tool, its `use`, and a `reset` that returns `self.pose(problem, value)`."""

    tool: ClassVar[Tool]
    """It takes an `expression`."""
    value: str
    """The right answer."""

    def pose(self, problem: Problem, value: str) -> str:
        """Start an episode on a problem; returns the first observation."""
        self.expression, self.value = problem.expression, value
        return self.begin(problem.question)

    def tools(self) -> list[Tool]:
        return [self.tool]

    def ask(self, expression: str) -> str:
        """A call of the tool."""
        return str(ToolCall(self.tool.name, {"expression": expression}))

    def is_right(self, answer: str) -> bool:
        return answer.strip() == self.value

    def solve(self) -> list[str] | None:
        if self.is_over:
            return None
        # With one step left there is no time for the tool.
        is_last = self.num_steps + 1 >= self.config.max_steps
        return [self.value] if self.has_result or is_last else [self.ask(self.expression), self.value]

    @property
    def has_result(self) -> bool:
        return self.said.endswith(f":\n{self.value}")
