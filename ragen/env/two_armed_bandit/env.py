"""The two-armed bandit of the base experiments: named arms with normal rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragen.env.base import Env, StepResult
from ragen.env.options import require
from ragen.seeding import Rng

LOW, HIGH = 1, 2  # action ids; only the order of the names in the text changes with the seed
STD = 0.1
LOW_MEAN = 0.2
HIGH_MEANS = (0.1, 1.0)  # usual and lucky; overall 0.75 * 0.1 + 0.25 * 1 = 0.325
LUCKY_PROBABILITY = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoArmedBanditConfig:
    """The options of the two-armed bandit."""

    low_risk_name: Annotated[str, "Name of the low-risk arm."] = "phoenix"
    high_risk_name: Annotated[str, "Name of the high-risk arm."] = "dragon"

    def __post_init__(self) -> None:
        for field in ("low_risk_name", "high_risk_name"):
            name = getattr(self, field)
            require(bool(name.strip()), f"two_armed_bandit.{field}", name, "Give the arm a name.")
        is_same = self.low_risk_name.strip().lower() == self.high_risk_name.strip().lower()
        remedy = "Give the two arms different names; capital letters do not count."
        require(not is_same, "two_armed_bandit.high_risk_name", self.high_risk_name, remedy)


class TwoArmedBanditEnv(Env):
    """One pull of one of two arms; `success` only says that the arm was pulled, so the episode was finished."""

    config_class = TwoArmedBanditConfig

    def __init__(self, config: TwoArmedBanditConfig | None = None) -> None:
        super().__init__(config or TwoArmedBanditConfig())
        self.names = {LOW: self.config.low_risk_name, HIGH: self.config.high_risk_name}
        self.reset(seed=0)

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the order of the names from `seed`, the luck of the pull from `seed` and `member`."""
        order = list(self.names.values())
        Rng(seed, "two_armed_bandit").shuffle(order)
        self.luck = Rng(seed, "pull", member)
        self.is_done = False
        self.observation = (
            f"You play a bandit with two arms, {order[0]} and {order[1]}. Each arm has its own distribution of points. "
            "Pull one arm, once, and earn as many points as you can."
        )
        return self.observation

    def step(self, action: int) -> StepResult:
        """Pull an arm, which ends the episode; an id that is no arm earns nothing and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        self.is_done = True
        is_arm = action in self.names
        reward = self.pay(action) if is_arm else 0.0
        self.observation = (
            f"You pulled {self.names[action]} and got {reward:.2f} points." if is_arm else "No arm was pulled."
        )
        info = {
            "action_is_valid": float(is_arm),
            "action_is_effective": float(is_arm),
            "success": float(is_arm),
            "n_low_arm": float(action == LOW),
            "n_high_arm": float(action == HIGH),
            "n_invalid": float(not is_arm),
        }
        return StepResult(observation=self.observation, reward=reward, is_done=True, info=info)

    def pay(self, action: int) -> float:
        """What pulling an arm earns."""
        if action == LOW:
            return self.luck.gauss(LOW_MEAN, STD)
        return self.luck.gauss(HIGH_MEANS[self.luck.random() < LUCKY_PROBABILITY], STD)

    def render(self) -> str:
        return self.observation

    @property
    def actions(self) -> dict[int, str]:
        return dict(self.names)

    def solve(self) -> list[int] | None:
        """The pull of the arm with the higher mean."""
        return None if self.is_done else [HIGH]

    def hint(self) -> str:
        """Which arm is which."""
        return "" if self.is_done else f"{self.names[HIGH]} is risky, {self.names[LOW]} is safe."
