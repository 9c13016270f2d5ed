"""Gymnasium environments as environments of ours: discrete actions with names, or texts as actions.

Needs the extra: pip install -e .[gym]. Often a few lines of YAML are enough; a subclass that overrides `to_text` or
`is_success` covers the rest. MiniGrid's boards are put into words by minigrid.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ragen.config.bounds import Bound
from ragen.config.strict import did_you_mean
from ragen.env import minigrid
from ragen.env.base import Env, StepResult, TextEnv, step_info
from ragen.env.success_rule import HELP, SuccessRule, parse_rule
from ragen.errors import ConfigError, MissingExtra, needing_extra
from ragen.seeding import fixed_hash

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class GymnasiumConfig:
    """Which Gymnasium environment, and how it is put into words."""

    env_id: Annotated[str, "Name of the environment, as in gymnasium.make."] = "FrozenLake-v1"
    env_kwargs: Annotated[dict[str, Any], "Options of the environment, passed to gymnasium.make."] = field(
        default_factory=dict
    )
    action_names: Annotated[
        tuple[str, ...],
        "Names of the actions in their order; empty: action 0, action 1, ... (MiniGrid: Left, Right, Forward, ...)",
        Bound(
            lambda names: len({name.strip().lower() for name in names} - {""}) == len(names),
            "Give each action a name of its own; capital letters do not count.",
        ),
    ] = ()
    description: Annotated[str, "Facts for the system message, such as what the numbers of an observation mean."] = ""
    success: Annotated[str, "When an episode is solved, such as reward >= 475; empty: Gymnasium's own threshold."] = ""
    view: Annotated[Literal["agent", "full"], "MiniGrid: what the agent sees, or the whole board."] = "agent"

    def __post_init__(self) -> None:
        if self.success:
            parse_rule(self.success, "gymnasium.success")


class Gymnasium(TextEnv):
    """A Gymnasium environment behind our interface.

    The level comes from `reset(seed)`. After it the environment's own generator is seeded again with (seed, member):
    the members of a group share the first observation and nothing random that follows.
    """

    config_class = GymnasiumConfig

    def __init__(self, config: GymnasiumConfig | None = None) -> None:
        super().__init__(config)
        self.is_minigrid = minigrid.is_minigrid(self.config.env_id)
        self.env = make_gymnasium(self.config.env_id, self.config.env_kwargs)
        self.check_actions()
        self.rule = self.success_rule()
        self.reset(seed=0)

    def check_actions(self) -> None:
        """Refuse an environment whose actions this class cannot give."""

    def is_action(self, action: Any) -> bool:
        """Whether the environment may be given this action."""
        raise NotImplementedError

    def success_rule(self) -> SuccessRule | None:
        """The rule of the config, else the reward from which Gymnasium calls this environment solved."""
        if type(self).is_success is not Gymnasium.is_success:
            return None
        if self.config.success:
            return parse_rule(self.config.success, "gymnasium.success")
        if self.is_minigrid:
            return parse_rule(minigrid.SUCCESS, "minigrid.SUCCESS")
        threshold = getattr(self.env.spec, "reward_threshold", None)
        if threshold is None:
            raise ConfigError(
                f"gymnasium.success is not set, and {self.config.env_id} has no reward threshold of its own: when is "
                f"an episode solved? {HELP}"
            )
        return parse_rule(f"reward >= {float(threshold)!r}", "reward_threshold")

    def to_text(self, observation: Any) -> str:
        """An observation in words; `self.env` is there for whatever else the text needs. Meant to be overridden."""
        if self.is_minigrid:
            return minigrid.describe(self.env.unwrapped, self.config.view)
        observation = plain(observation)
        if isinstance(observation, dict):
            return "\n".join(f"{key}: {value}" for key, value in observation.items())
        return str(observation)

    def is_success(self, reward: float, is_terminated: bool, info: Mapping[str, Any]) -> bool:
        """Whether the episode was won with this step, whose reward is given. Overridden, it replaces the rule."""
        assert self.rule is not None, "made in __init__"
        return self.rule(reward=self.total, is_terminated=is_terminated, info=info)

    def reset(self, seed: int, member: int = 0) -> str:
        """Start a new episode: the level follows from `seed`, later chance from `seed` and `member`."""
        from gymnasium.utils.seeding import np_random

        observation, _ = self.env.reset(seed=seed % 2**32)
        self.env.unwrapped.np_random, _ = np_random(fixed_hash(seed, "gymnasium", member))
        self.is_done, self.total = False, 0.0
        self.text = self.to_text(observation)
        return self.text

    def step(self, action: Any) -> StepResult:
        """Do one action; one that the environment does not know leaves the state and is reported as invalid."""
        assert not self.is_done, "the episode is over: call reset"
        if not self.is_action(action):
            info = step_info(is_valid=False, is_effective=False, is_success=False)
            return StepResult(observation=self.text, reward=0.0, is_done=False, info=info)
        observation, reward, is_terminated, is_truncated, info = self.env.step(action)
        before, self.text = self.text, self.to_text(observation)
        self.is_done = bool(is_terminated or is_truncated)
        self.total += float(reward)
        return StepResult(
            observation=self.text,
            reward=float(reward),
            terminated=bool(is_terminated),
            truncated=bool(is_truncated),
            info=step_info(
                is_valid=True,
                is_effective=self.text != before,
                is_success=self.is_success(float(reward), bool(is_terminated), info),
            ),
        )

    def render(self) -> str:
        return self.text

    def level_content(self) -> str:
        """The first observation; of MiniGrid the whole board, of which an agent sees a part."""
        return minigrid.describe(self.env.unwrapped, "full") if self.is_minigrid else ""

    def notes(self) -> str:
        """The description given in the config; MiniGrid's symbols."""
        notes = [minigrid.NOTES] if self.is_minigrid else []
        notes += [minigrid.AGENT_NOTES] if self.is_minigrid and self.config.view == "agent" else []
        return "\n".join(filter(None, [*notes, self.config.description]))

    def render_rgb(self) -> np.ndarray | None:
        """The environment's own picture, where env_kwargs holds render_mode: rgb_array."""
        return self.env.render() if self.env.render_mode == "rgb_array" else None  # type: ignore[return-value]

    def close(self) -> None:
        self.env.close()


class GymnasiumEnv(Gymnasium, Env):
    """A Gymnasium environment with discrete actions, each with a name; MiniGrid, too."""

    def check_actions(self) -> None:
        names = self.config.action_names
        if self.is_minigrid and not names:
            names = minigrid.ACTIONS[: getattr(self.env.action_space, "n", 0)]  # some boards have the first three alone
        self.names = name_actions(self.env.action_space, names)

    def is_action(self, action: Any) -> bool:
        return action in self.names

    @property
    def actions(self) -> dict[int, str]:
        return dict(self.names)


class GymnasiumTextEnv(Gymnasium):
    """A Gymnasium environment whose actions are texts: its Text space says what is valid."""

    def check_actions(self) -> None:
        from gymnasium.spaces import Text

        if not isinstance(self.env.action_space, Text):
            raise ConfigError(
                f"gymnasium_text: expected a Text action space, got {self.env.action_space}. "
                "For discrete actions set env_type: gymnasium."
            )

    def is_action(self, action: Any) -> bool:
        return isinstance(action, str) and self.env.action_space.contains(action)


def plain(value: Any) -> Any:
    """Arrays as lists and NumPy's numbers as Python's, in containers too."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def make_gymnasium(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """A Gymnasium environment by name."""
    extra, package = ("minigrid", "MiniGrid") if minigrid.is_minigrid(env_id) else ("gym", "Gymnasium")
    with needing_extra(extra, f"gymnasium.env_id {env_id!r} needs {package}, which is not installed"):
        import gymnasium

        if extra == "minigrid":
            import minigrid as boards  # noqa: F401  (its ids are registered by Gymnasium)
    try:
        env = gymnasium.make(env_id, **env_kwargs)
        if minigrid.is_minigrid(env_id):
            env.reset(seed=0)  # some of its boards find out only now what they lack
        return env
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtra(f"gymnasium.env_id {env_id!r} needs one more package: {error}") from error
    except (gymnasium.error.Error, TypeError) as error:
        hint = "" if env_id in gymnasium.registry else did_you_mean(env_id, gymnasium.registry)
        said = str(error).partition(" Did you mean")[0] if hint else error  # Gymnasium's own leaves out the version
        raise ConfigError(f"gymnasium.env_id {env_id!r} with env_kwargs {dict(env_kwargs)}: {said}{hint}") from error


def name_actions(space: Any, names: tuple[str, ...]) -> dict[int, str]:
    """Action id -> name for a discrete action space; names are made up where none are given."""
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise ConfigError(
            f"gymnasium: expected a Discrete action space, got {space}. Wrap the environment to have one; "
            "texts as actions are env_type: gymnasium_text."
        )
    ids = range(int(space.start), int(space.start + space.n))
    names = names or tuple(f"action {action}" for action in ids)
    if len(names) != len(ids):
        raise ConfigError(
            f"gymnasium.action_names is {names!r}. The environment has {len(ids)} actions: give as many names, or none."
        )
    return dict(zip(ids, names))
