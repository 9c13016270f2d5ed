"""Small free-text environments for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragen.env import StepResult, TextEnv
from ragen.env.base import step_info
from ragen.seeding import Rng


@dataclass(frozen=True, kw_only=True)
class EchoConfig:
    max_steps: int = 3
    word: str = "please"
    """What must be said."""


class Echo(TextEnv):
    """Remembers what it was given; the word ends the episode with 1, and texts with a # are no use to it."""

    config_class = EchoConfig

    def __init__(self, config: EchoConfig | None = None) -> None:
        super().__init__(config or EchoConfig())
        self.heard: list[str] = []

    def reset(self, seed: int, member: int = 0) -> str:
        self.seed, self.heard = seed, []
        return self.render()

    def step(self, action: str) -> StepResult:
        self.heard.append(action)
        is_won = action.strip() == self.config.word
        return StepResult(
            observation=self.render(),
            reward=float(is_won),
            terminated=is_won,
            truncated=not is_won and len(self.heard) >= self.config.max_steps,
            info=step_info(is_valid="#" not in action, is_effective=True, is_success=is_won),
        )

    def render(self) -> str:
        return f"level {self.seed}, texts {len(self.heard)}"


class Polite(Echo):
    """With words of its own, a solver and a random answer."""

    max_tokens = 17

    def system_prompt(self) -> str:
        return f"You talk to door {self.seed}."

    def example_answer(self) -> str:
        return "open, thanks"

    def sample_text(self, rng: Rng) -> str:
        return rng.choice(["open", "thanks", self.config.word])

    def solve(self) -> list[Any] | None:
        return [self.config.word]

    def hint(self) -> str:
        return "Doors like manners."
