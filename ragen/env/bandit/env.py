"""Bandit: two arms, one pull; the names tell which arm is the risky one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ragen.env.base import Env, StepResult
from ragen.env.options import require
from ragen.seeding import Rng

# (low-risk arm, high-risk arm). The test names share no word with the training names, so that a policy that only
# learned names by heart shows.
ARMS = {
    "train": (
        ("Librarian", "Gambler"),
        ("Tortoise", "Falcon"),
        ("Pebble", "Meteor"),
        ("Candle", "Firework"),
        ("Ferry", "Speedboat"),
        ("Kettle", "Volcano"),
        ("Clerk", "Pirate"),
        ("Footpath", "Tightrope"),
        ("Savings Jar", "Lottery"),
        ("Willow", "Tornado"),
        ("Anchor", "Rocket"),
        ("House Cat", "Tiger"),
    ),
    "test": (
        ("Farmer", "Stuntman"),
        ("Lantern", "Lightning"),
        ("Bicycle", "Racecar"),
        ("Harbor", "Hurricane"),
        ("Blanket", "Parachute"),
        ("Pond", "Geyser"),
        ("Accountant", "Daredevil"),
        ("Garden Gnome", "Wild Bull"),
    ),
}

LOW_REWARD = 0.1
HIGH_REWARD = 1.0  # mean of the high-risk arm: 0.25 * 1 = 0.25
HIGH_PROBABILITY = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class BanditConfig:
    """The options of the bandit."""

    split: Annotated[Literal["train", "test"], "Which pairs of arm names are drawn from."] = "train"
    action_space_start: Annotated[int, "Id of the arm that is named first."] = 1

    def __post_init__(self) -> None:
        require(self.split in ARMS, "bandit.split", self.split, f"Choose from: {', '.join(ARMS)}.")
        require(self.action_space_start >= 0, "bandit.action_space_start", self.action_space_start, "Use 0 or more.")


class BanditEnv(Env):
    """One pull: the low-risk arm always pays 0.1, the high-risk arm pays 1 with probability 0.25, else nothing."""

    config_class = BanditConfig

    def __init__(self, config: BanditConfig | None = None) -> None:
        super().__init__(config or BanditConfig())
        self.reset(seed=0)

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the pair of names and their order from `seed`, the luck of the pull from `seed` and `member`."""
        names = Rng(seed, "bandit")
        self.low, self.high = names.choice(ARMS[self.config.split])
        order = [self.low, self.high] if names.below(2) else [self.high, self.low]
        self.names = dict(enumerate(order, start=self.config.action_space_start))
        self.luck = Rng(seed, "pull", member)
        self.is_done = False
        first, second = order
        self.observation = (
            f"There are two arms: {first} and {second}. How an arm pays follows from its name. "
            "Pull one arm, once, and earn as many points as you can."
        )
        return self.observation

    def step(self, action: int) -> StepResult:
        """Pull an arm, which ends the episode; an id that is no arm earns nothing and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        self.is_done = True
        name = self.names.get(action)
        reward = 0.0 if name is None else self.pay(name)
        self.observation = f"You pulled {name} and got {reward:g} points." if name else "No arm was pulled."
        info = {
            "action_is_valid": float(name is not None),
            "action_is_effective": float(name is not None),
            "success": float(name == self.high),
        }
        return StepResult(observation=self.observation, reward=reward, is_done=True, info=info)

    def pay(self, name: str) -> float:
        """What pulling an arm earns."""
        if name == self.low:
            return LOW_REWARD
        return HIGH_REWARD if self.luck.random() < HIGH_PROBABILITY else 0.0

    def render(self) -> str:
        return self.observation

    @property
    def actions(self) -> dict[int, str]:
        return dict(self.names)

    def solve(self) -> list[int] | None:
        """The pull of the arm with the higher mean."""
        return None if self.is_done else [action for action, name in self.names.items() if name == self.high]

    def hint(self) -> str:
        """Which arm is which."""
        return "" if self.is_done else f"{self.high} is risky, {self.low} is safe."
