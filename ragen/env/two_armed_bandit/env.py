"""The two-armed bandit of the base experiments: named arms with normal rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.config.bounds import Name
from ragen.env.arms import ArmsEnv
from ragen.env.base import StepResult
from ragen.errors import ConfigError
from ragen.seeding import Rng

STD = 0.1
LOW_MEAN = 0.2
HIGH_MEANS = (0.1, 1.0)  # usual and lucky; overall 0.75 * 0.1 + 0.25 * 1 = 0.325
LUCKY_PROBABILITY = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoArmedBanditConfig:
    """The options of the two-armed bandit."""

    low_risk_name: Annotated[Name, "Name of the low-risk arm."] = "phoenix"
    high_risk_name: Annotated[Name, "Name of the high-risk arm."] = "dragon"

    def __post_init__(self) -> None:
        if self.low_risk_name.strip().lower() == self.high_risk_name.strip().lower():
            raise ConfigError(
                f"two_armed_bandit.high_risk_name is {self.high_risk_name!r}. Give the two arms different names; "
                "capital letters do not count."
            )


class TwoArmedBanditEnv(ArmsEnv):
    """One pull of one of two arms; `success` only says that the arm was pulled, so the episode was finished."""

    config_class = TwoArmedBanditConfig
    reward_format = ".2f"
    low, high = 1, 2  # only the order of the names in the text changes with the seed

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the order of the names from `seed`, the luck of the pull from `seed` and `member`."""
        self.names = {self.low: self.config.low_risk_name, self.high: self.config.high_risk_name}
        order = list(self.names.values())
        Rng(seed, "two_armed_bandit").shuffle(order)
        observation = (
            f"You play a bandit with two arms, {order[0]} and {order[1]}. Each arm has its own distribution of points. "
            "Pull one arm, once, and earn as many points as you can."
        )
        return self.begin(observation, Rng(seed, "pull", member))

    def step(self, action: int) -> StepResult:
        result = super().step(action)
        result.info["n_low_arm"] = float(action == self.low)
        result.info["n_high_arm"] = float(action == self.high)
        result.info["n_invalid"] = float(action not in self.names)
        return result

    def is_success(self, action: int) -> bool:
        return action in self.names

    def pay(self, action: int) -> float:
        if action == self.low:
            return self.luck.gauss(LOW_MEAN, STD)
        return self.luck.gauss(HIGH_MEANS[self.luck.random() < LUCKY_PROBABILITY], STD)
