"""Bandit: two arms, one pull; the names tell which arm is the risky one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ragen.config.bounds import CountOrZero
from ragen.env.arms import ArmsEnv
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
    action_space_start: Annotated[CountOrZero, "Id of the arm that is named first."] = 1


class BanditEnv(ArmsEnv):
    """One pull: the low-risk arm always pays 0.1, the high-risk arm pays 1 with probability 0.25, else nothing."""

    config_class = BanditConfig

    def reset(self, seed: int, member: int = 0) -> str:
        """Draw the pair of names and their order from `seed`, the luck of the pull from `seed` and `member`."""
        rng, start = Rng(seed, "bandit"), self.config.action_space_start
        low, high = rng.choice(ARMS[self.config.split])
        first, second = order = (low, high) if rng.below(2) else (high, low)
        self.names = dict(enumerate(order, start))
        self.low, self.high = (start + order.index(name) for name in (low, high))
        observation = (
            f"There are two arms: {first} and {second}. How an arm pays follows from its name. "
            "Pull one arm, once, and earn as many points as you can."
        )
        return self.begin(observation, Rng(seed, "pull", member))

    def pay(self, action: int) -> float:
        if action == self.low:
            return LOW_REWARD
        return HIGH_REWARD if self.luck.random() < HIGH_PROBABILITY else 0.0
