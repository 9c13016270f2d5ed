"""Problems whose answer is the value of one expression, with a tool that works expressions out.

Tested in tests/env/test_calculator_env.py and tests/env/test_python_expression_env.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from ragen.env.arithmetic import Refused
from ragen.env.base import StartedEnv
from ragen.env.tool_env import ToolEnv, ToolRefused
from ragen.env.tools import Tool, ToolCall


class ExpressionEnv(StartedEnv, ToolEnv):
    """A subclass has the tool, `value_of`, and a `reset` that returns `self.pose(question, expression)`."""

    tool: ClassVar[Tool]
    """It takes an `expression`."""
    value: str
    """The right answer."""

    @abstractmethod
    def value_of(self, expression: str) -> str:
        """The value of an expression; Refused says why it has none."""

    def pose(self, question: str, expression: str) -> str:
        """Start an episode on a question and the expression that answers it; returns the first observation."""
        self.expression, self.value = expression, self.value_of(expression)
        return self.begin(question)

    def use(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            return self.value_of(arguments["expression"])
        except Refused as reason:
            raise ToolRefused(f"the expression has no value: {reason}") from reason

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
