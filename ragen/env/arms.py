"""One pull of one of two named arms: what the bandits share.

Tested in tests/env/test_bandit_env.py and tests/env/test_two_armed_bandit_env.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ragen.env.base import Env, StartedEnv, StepResult, step_info
from ragen.seeding import Rng


class ArmsEnv(StartedEnv, Env):
    """An episode is one pull; an unknown action id earns nothing and is reported as invalid."""

    reward_format: ClassVar[str] = "g"

    names: dict[int, str]
    """Action id -> name of the arm."""
    low: int
    """Action id of the low-risk arm."""
    high: int
    """Action id of the high-risk arm, which has the higher mean."""

    def begin(self, observation: str, luck: Rng) -> str:
        """Start an episode; `luck` decides what the pull pays."""
        self.observation, self.luck, self.is_done = observation, luck, False
        return observation

    @abstractmethod
    def pay(self, action: int) -> float:
        """What pulling an arm earns."""

    def is_success(self, action: int) -> bool:
        """The better arm was pulled."""
        return action == self.high

    def step(self, action: int) -> StepResult:
        """Pull an arm, which ends the episode."""
        assert not self.is_done, "the episode is over: call reset"
        self.is_done, is_arm, reward = True, action in self.names, 0.0
        self.observation = "No arm was pulled."
        if is_arm:
            reward = self.pay(action)
            self.observation = f"You pulled {self.names[action]} and got {reward:{self.reward_format}} points."
        info = step_info(is_valid=is_arm, is_effective=is_arm, is_success=self.is_success(action))
        return StepResult(observation=self.observation, reward=reward, is_done=True, info=info)

    def render(self) -> str:
        return self.observation

    @property
    def actions(self) -> dict[int, str]:
        return dict(self.names)

    def solve(self) -> list[int] | None:
        """The pull of the arm with the higher mean."""
        return None if self.is_done else [self.high]

    def hint(self) -> str:
        """Which arm is which."""
        return "" if self.is_done else f"{self.names[self.high]} is risky, {self.names[self.low]} is safe."
