"""The reward function of one's own: what a finished episode earns, in place of the sum of its environment's rewards."""

from __future__ import annotations

from collections.abc import Callable

from ragen.config.extensions import load
from ragen.env.boundary import MAX_REWARD, as_reward, quote
from ragen.errors import RagenError
from ragen.types import Episode

KEY = "es_manager.reward_function"
CHANGE = "reward_change"
"""Info of the last turn: what the function added to the reward of the episode."""

RewardFunction = Callable[[Episode], float]


def reward_function(name: str | None) -> RewardFunction | None:
    """The function of that name; None where the environment's rewards count as they are."""
    return None if name is None else load("rewards", name, KEY)


def replace_reward(episode: Episode, function: RewardFunction, *, name: str | None) -> None:
    """Let an episode earn what the function says: the difference is added to its last turn. Once, and not to faults.

    rewards of the turns [0, 1], function -> 0.5: rewards [0, 0.5], info of the last turn {"reward_change": -0.5}
    """
    if episode.status.is_fault or not episode.turns or CHANGE in (last := episode.turns[-1]).info:
        return
    try:
        found = function(episode)
    except Exception as error:
        raise RagenError(
            f"{KEY}={name} failed on {episode.tag}, level {episode.seed}: {type(error).__name__}: {error}. Repair the "
            "function, or set the key to null."
        ) from error
    try:
        reward = as_reward(found)
    except ValueError as error:
        raise RagenError(
            f"{KEY}={name} returned {quote(found)} on {episode.tag}, level {episode.seed}. Return a finite number, at "
            f"most {MAX_REWARD:g}."
        ) from error
    change = reward - episode.reward
    last.reward += change
    last.info[CHANGE] = change
