"""What every environment is: reset, step, render, and the texts a prompt needs.

Tested in tests/env/test_checker.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What one action did."""

    observation: str
    """The state after the action, in the environment's observation format."""
    reward: float
    is_done: bool
    """The episode is over: solved, failed or out of the environment's own step limit."""
    info: dict[str, float] = field(default_factory=dict)
    """Numbers about the action; always those of `step_info`."""


def step_info(*, is_valid: bool, is_effective: bool, is_success: bool) -> dict[str, float]:
    """The numbers that every step reports."""
    return {
        "action_is_valid": float(is_valid),
        "action_is_effective": float(is_effective),
        "success": float(is_success),
    }


class Env(ABC):
    """A text environment with named, discrete actions.

    Two seeds make an episode: `seed` fixes the level, which the members of a group share; `member` fixes the
    noise of the dynamics (slip, arm rewards), which they do not share.
    """

    config_class: ClassVar[type]
    """Dataclass with a default for every option."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode on the level of `seed`; returns the first observation."""

    @abstractmethod
    def step(self, action: int) -> StepResult:
        """Do one action, given by its id (a key of `actions`)."""

    @abstractmethod
    def render(self) -> str:
        """The current observation as text."""

    @property
    @abstractmethod
    def actions(self) -> dict[int, str]:
        """Action id -> name, for the current level. Names are unique without regard to case."""

    def notes(self) -> str:
        """Facts for the system message that follow from this configuration: symbols, board size. May be empty."""
        return ""

    def level_content(self) -> str:
        """What makes up the level after `reset`: equal texts are one level, whatever the seed. Empty: the observation.

        Noise that the members of a group do not share is not part of it. Override it where the first observation does
        not show the whole level, or shows it in a way that an option changes.
        """
        return ""

    def solve(self) -> list[int] | None:
        """Action ids of a shortest solution from the current state; None where there is none or no solver."""
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
