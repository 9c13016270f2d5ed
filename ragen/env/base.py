"""What every environment is: reset, step, render, and the texts a prompt needs.

Tested in tests/env/test_checker.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ragen.env.tools import Tool
from ragen.seeding import Rng

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What one action did. Its end is told as `terminated` and `truncated`, or as `is_done` alone.

    Each form gives the other:

        StepResult(observation="won", reward=1.0, terminated=True).is_done -> True
        StepResult(observation="won", reward=1.0, is_done=True).terminated -> True
    """

    observation: str
    """The state after the action, in the environment's observation format."""
    reward: float
    is_done: bool = False
    """The episode is over: terminated or truncated."""
    info: dict[str, float] = field(default_factory=dict)
    """Numbers about the action; always those of `step_info`."""
    terminated: bool = False
    """The task ended the episode: solved or failed."""
    truncated: bool = False
    """A limit of the environment's own ended it, such as a number of steps."""
    tool_result: str | None = None
    """What a tool returned, or why it did not: the model gets it as a tool message. None: no tool was called."""
    tool_problem: str = ""
    """Why a call brought no result, one of `ragen.env.tools.PROBLEMS`; empty where it did."""

    def __post_init__(self) -> None:
        # No truth is asked of any value here: what an environment gives is checked at the border (boundary.py).
        if self.terminated is not False or self.truncated is not False:
            object.__setattr__(self, "is_done", self.terminated if self.truncated is False else self.truncated)
        else:
            object.__setattr__(self, "terminated", self.is_done)


def step_info(*, is_valid: bool, is_effective: bool, is_success: bool) -> dict[str, float]:
    """The numbers that every step reports."""
    return {
        "action_is_valid": float(is_valid),
        "action_is_effective": float(is_effective),
        "success": float(is_success),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """The options of an environment that has none."""


class TextEnv(ABC):
    """A text environment: `step` is given what stood in the answer block, as it was written.

    Two seeds make an episode: `seed` fixes the level, which the members of a group share; `member` fixes the
    noise of the dynamics (slip, arm rewards), which they do not share.
    """

    config_class: ClassVar[type] = NoOptions
    """Dataclass with a default for every option."""
    max_tokens: int | None = None
    """Length of a reply as told to the model, where the tag's max_tokens is null."""

    def __init__(self, config: Any = None) -> None:
        self.config = self.config_class() if config is None else config

    @classmethod
    def data_facts(cls, config: Any) -> Mapping[str, str]:
        """Option that names a file -> what the file holds, in words that change with it.

        A run that resumes with another content is refused, as it is with another value of the option.
        """
        return {}

    @abstractmethod
    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode on the level of `seed`; returns the first observation."""

    @abstractmethod
    def step(self, action: Any) -> StepResult:
        """Do what an answer says. Any text may come: one that cannot be used is reported with action_is_valid 0."""

    @abstractmethod
    def render(self) -> str:
        """The current observation as text."""

    def notes(self) -> str:
        """Facts for the system message that follow from this configuration: symbols, board size. May be empty."""
        return ""

    def system_prompt(self) -> str:
        """A system message of its own, with the tag's env_instruction behind it; empty: the usual one."""
        return ""

    def tools(self) -> Sequence[Tool]:
        """What a reply may call instead of answering; see `ragen.env.tool_env.ToolEnv`."""
        return ()

    def example_answer(self) -> str:
        """An answer that shows the form and says nothing about this level's solution; empty: none is shown."""
        return ""

    def sample_text(self, rng: Rng) -> str | None:
        """A random answer to the current state, the yardstick of chance; None where there is no such thing."""
        return None

    def level_content(self) -> str:
        """What makes up the level after `reset`: equal texts are one level, whatever the seed. Empty: the observation.

        Noise that the members of a group do not share is not part of it. Override it where the first observation does
        not show the whole level, or shows it in a way that an option changes.
        """
        return ""

    def solve(self) -> list[Any] | None:
        """Ids or texts of the actions of a shortest solution from here; None where there is none or no solver."""
        return None

    def hint(self) -> str:
        """One short, true sentence about the current state, the thought of a demonstration. May be empty."""
        return ""

    def render_rgb(self) -> np.ndarray | None:
        """The current state as a picture, uint8 [height, width, 3]; None where there is no picture."""
        return None

    def close(self) -> None:
        """Free what the environment holds."""
        return None


class StartedEnv(TextEnv):
    """An environment that is on a level once it is made: so it is proven, before any training, that levels exist."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.reset(seed=0)


class Env(TextEnv):
    """The simpler case: an answer names actions out of a list, and `step` is given their ids."""

    @abstractmethod
    def step(self, action: int) -> StepResult:
        """Do one action, given by its id (a key of `actions`)."""

    @property
    @abstractmethod
    def actions(self) -> dict[int, str]:
        """Action id -> name, for the current level. Names are unique without regard to case."""
