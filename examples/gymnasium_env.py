"""Two Gymnasium environments as environments of ours, each played once by a random policy.

    pip install -e .[gym]
    python examples/gymnasium_env.py

Expect a walk on a frozen lake and a hand of Blackjack, each ending with "reward ..., success ...".
"""

from dataclasses import dataclass
from typing import Any

from ragen.env.base import Env
from ragen.env.gymnasium import GymnasiumConfig, GymnasiumEnv
from ragen.env.registry import make_env
from ragen.seeding import Rng


@dataclass(frozen=True, kw_only=True, slots=True)
class GymFrozenLakeConfig(GymnasiumConfig):
    """Gymnasium's own lake, with names for its four actions."""

    env_id: str = "FrozenLake-v1"
    action_names: tuple[str, ...] = ("Left", "Down", "Right", "Up")
    description: str = "P is you, S the start, F ice, H a hole, G the goal. The ice is slippery."


class GymFrozenLake(GymnasiumEnv):
    """The observation is a cell number, so the text is the map with the player drawn in."""

    config_class = GymFrozenLakeConfig

    def to_text(self, observation: Any) -> str:
        rows = self.env.unwrapped.desc.astype(str)
        row, col = divmod(int(observation), rows.shape[1])
        rows[row, col] = "P"
        return "\n".join("".join(row) for row in rows)


# Nothing to override: this could as well be the env_config of a tag in config/envs.yaml.
BLACKJACK = {
    "env_id": "Blackjack-v1",
    "action_names": ["Stick", "Hit"],
    "success": "reward >= 1",
    "description": "A state is (your sum, the dealer's card, 1 if you hold a usable ace).",
}


def play(env: Env, seed: int) -> float:
    """Play one episode at random, print it and return its reward."""
    rng, total, is_done, success = Rng(seed, "random policy"), 0.0, False, 0.0
    print(env.notes(), env.reset(seed), sep="\n")
    while not is_done:
        action = rng.choice(list(env.actions))
        result = env.step(action)
        total, is_done, success = total + result.reward, result.is_done, result.info["success"]
        print(f"-- {env.actions[action]}", result.observation, sep="\n")
    print(f"reward {total:g}, success {success:g}\n")
    return total


def main() -> None:
    for env in (GymFrozenLake(), make_env("gymnasium", BLACKJACK)):
        play(env, seed=1)
        env.close()


if __name__ == "__main__":
    main()
