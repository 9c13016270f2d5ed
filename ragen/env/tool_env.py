"""Environments with tools: a reply calls one of them or is the final answer.

A step has two halves. `run` reads the action and uses the tool; it changes nothing, so that a tool which hangs can be
given up and the episode continued. `take` takes in what came of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragen.env.base import StepResult, TextEnv, step_info
from ragen.env.boundary import EnvFault, as_text, guarded
from ragen.env.tools import EXCEPTION, REFUSED, TIMEOUT, UNUSABLE, CallError, Tool, ToolCall, read_call
from ragen.text import shorten

MAX_ERROR = 300
"""Characters of an error that the model is told."""


class ToolRefused(ValueError):
    """Raised by a tool that cannot do what it was asked; the message is for whoever asked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action asked of the tools and what came of it."""

    action: str
    is_call: bool
    """False: the action is the final answer."""
    text: str = ""
    """The tool's result, or why there is none."""
    problem: str = ""
    """One of `tools.PROBLEMS`; empty where the tool gave a result."""
    call: ToolCall | None = None
    """None where the call could not be read."""


class ToolEnv(TextEnv):
    """A task, tools that help with it, and one final answer, which ends the episode.

    A subclass has `tools`, `use`, `is_right`, and a `reset` that returns `self.begin(task)`; its config has
    `max_steps`, the most calls and answers of an episode.
    """

    max_result = 2_000
    """Characters of a tool's result; longer ones are cut in the middle, and say so."""

    task: str = ""
    said: str = ""
    num_steps: int = 0
    is_over: bool = False

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """What the model may call on this level."""

    @abstractmethod
    def use(self, name: str, arguments: dict[str, Any]) -> str:
        """The result of a tool; the arguments fit its schema.

        It must not change the environment. ToolRefused, like any exception, is told to the model and counted.
        """

    @abstractmethod
    def is_right(self, answer: str) -> bool:
        """Whether a final answer is right."""

    def begin(self, task: str) -> str:
        """Start an episode on a task; returns the first observation."""
        self.task, self.said, self.num_steps, self.is_over = task, "", 0, False
        return self.render()

    def step(self, action: str) -> StepResult:
        return self.take(self.run(action))

    def run(self, action: str) -> Outcome:
        """Use the tool that an action calls. Nothing in the environment changes."""
        try:
            call = read_call(action, self.tools())
        except CallError as error:
            return Outcome(action, True, _sentence(error), error.problem)
        if call is None:
            return Outcome(action, False)
        try:
            text = as_text(guarded(self.use, call.name, call.arguments, passing=ToolRefused))
        except ToolRefused as error:
            return Outcome(action, True, _sentence(error), REFUSED, call)
        except (EnvFault, ValueError) as error:  # it raised, or returned what is no text
            return Outcome(action, True, _sentence(error), EXCEPTION, call)
        return Outcome(action, True, shorten(text, self.max_result), "", call)

    def timed_out(self, action: str, limit_s: float) -> Outcome:
        """The outcome of an action whose tool did not return in time."""
        try:
            call = read_call(action, self.tools())
        except CallError:
            call = None
        return Outcome(action, True, f"Error: the tool did not return within {limit_s:g} s.", TIMEOUT, call)

    def take(self, outcome: Outcome) -> StepResult:
        """Take in what came of an action."""
        assert not self.is_over, "the episode is over: call reset"
        self.num_steps += 1
        is_right = not outcome.is_call and self.is_right(outcome.action)
        if outcome.is_call:
            self.said = f"Result of {outcome.call or 'your call'}:\n{outcome.text}"
        else:
            self.said = f"Your answer is {'right' if is_right else 'wrong'}."
        is_cut = outcome.is_call and self.num_steps >= self.config.max_steps
        self.is_over = is_cut or not outcome.is_call
        is_valid = outcome.problem not in UNUSABLE and bool(outcome.action.strip())
        counts = {"tool_calls": float(outcome.is_call), "tool_errors": float(bool(outcome.problem))}
        return StepResult(
            observation=self.render(),
            reward=float(is_right),
            terminated=not outcome.is_call,
            truncated=is_cut,
            info=step_info(is_valid=is_valid, is_effective=True, is_success=is_right) | counts,
            tool_result=outcome.text if outcome.is_call else None,
            tool_problem=outcome.problem,
        )

    def render(self) -> str:
        """The task, and what came of the last action."""
        return f"{self.task}\n{self.said}" if self.said else self.task


def _sentence(error: Exception) -> str:
    return f"Error: {shorten(str(error), MAX_ERROR).rstrip('.')}."
