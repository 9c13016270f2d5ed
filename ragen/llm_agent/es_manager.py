"""Environment states: which environments a rollout plays, on which levels, and what a turn does to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ragen.config.schema import EnvSetConfig, EnvTag
from ragen.env import Env, make_env
from ragen.env.rng import fixed_hash


@dataclass(kw_only=True, slots=True)
class Seat:
    """One environment of a rollout and how far its episode is."""

    tag: str
    spec: EnvTag
    env: Env
    group_id: int
    member: int
    seed: int = 0
    level: str = ""
    """Hash of the level's content, empty where it could not be made."""
    observation: str = ""
    num_actions: int = 0
    """Actions executed in this episode."""
    action_ids: dict[str, int] = field(default_factory=dict)
    """Lower-case action name -> id, for the current level."""
    notes: str = ""
    """What the environment adds to the system message, for the current level."""
    error: str = ""
    """Why the environment failed, empty while it works."""

    @property
    def num_actions_left(self) -> int:
        return self.spec.max_actions_per_traj - self.num_actions

    def reset(self, seed: int) -> None:
        """Start a new episode on the level of `seed`."""
        self.seed, self.num_actions, self.error, self.observation, self.level = seed, 0, "", "", ""
        try:
            self.observation = _text(self.env.reset(seed, self.member))
            self.action_ids = {name.lower(): action for action, name in self.env.actions.items()}
            self.notes = self.env.notes()
            self.level = f"{fixed_hash(self.spec.env_type, self.env.level_content() or self.observation):016x}"
        except Exception as error:  # any environment may fail in any way; its own episode ends, the others go on
            self.error = _describe(error)


@dataclass(kw_only=True, slots=True)
class TurnOutcome:
    """What the actions of one turn did."""

    executed: list[str] = field(default_factory=list)
    num_dropped: int = 0
    """Known actions that were not executed: the budget was used up or the episode had ended."""
    is_invalid: bool = False
    """An action was unknown, or none was left to execute."""
    reward: float = 0.0
    info: dict[str, float] = field(default_factory=dict)
    is_done: bool = False
    is_success: bool = False
    is_out_of_actions: bool = False
    error: str = ""


def play_turn(seat: Seat, actions: list[str]) -> TurnOutcome:
    """Execute the known actions in order, until the budget is used up or the episode ends."""
    known = [(name, seat.action_ids[name.lower()]) for name in actions if name.lower() in seat.action_ids]
    outcome = TurnOutcome(is_invalid=not known or len(known) < len(actions))
    for name, action in known[: seat.num_actions_left]:
        try:
            result = seat.env.step(action)
            observation, reward = _text(result.observation), float(result.reward)
            info = {key: float(value) for key, value in result.info.items()}
            if not math.isfinite(reward):
                raise ValueError(f"the reward of {name} is {reward}")
        except Exception as error:  # see Seat.reset
            outcome.error = seat.error = _describe(error)
            return outcome
        seat.num_actions += 1
        seat.observation = observation
        outcome.executed.append(name)
        outcome.reward += reward
        outcome.info |= info
        if result.is_done:
            outcome.is_done = True
            outcome.is_success = bool(info.get("success"))
            break
    outcome.info["manager_invalid_action"] = float(outcome.is_invalid)
    outcome.num_dropped = len(known) - len(outcome.executed)
    outcome.is_out_of_actions = seat.num_actions_left <= 0
    return outcome


def _text(observation: object) -> str:
    if not isinstance(observation, str):
        raise TypeError(f"an observation must be a text, got {observation!r}")
    return observation


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class EsManager:
    """The seats of one kind of rollout (train, val or analysis). Group g of a rollout plays level base_seed + g."""

    def __init__(self, env_set: EnvSetConfig, custom_envs: Mapping[str, EnvTag]) -> None:
        self.group_size = env_set.group_size
        self.num_groups = env_set.env_groups
        self.seats: list[Seat] = []
        self._pools: dict[str, ThreadPoolExecutor] = {}
        group_id = 0
        for tag, num_groups in zip(env_set.env_configs.tags, env_set.env_configs.n_groups, strict=True):
            spec = custom_envs[tag]
            for _ in range(num_groups):
                for member in range(self.group_size):
                    env = make_env(spec.env_type, spec.env_config)
                    self.seats.append(Seat(tag=tag, spec=spec, env=env, group_id=group_id, member=member))
                group_id += 1
            if spec.parallel_friendly and spec.max_workers > 1:
                self._pools[tag] = ThreadPoolExecutor(spec.max_workers, thread_name_prefix=f"env-{tag}")

    @property
    def env_types(self) -> list[str]:
        return sorted({seat.spec.env_type for seat in self.seats})

    def reset(self, base_seed: int) -> list[Seat]:
        """Put every environment on its level and return the seats."""
        resets = []
        for seat in self.seats:
            pool = self._pools.get(seat.tag)
            seed = base_seed + seat.group_id
            if pool is None:
                seat.reset(seed)
            else:
                resets.append(pool.submit(seat.reset, seed))
        for done in resets:
            done.result()
        return self.seats

    def play(self, seat: Seat, actions: list[str]) -> TurnOutcome | Future[TurnOutcome]:
        """Do one turn: at once, or in the tag's thread pool where it has one."""
        pool = self._pools.get(seat.tag)
        return play_turn(seat, actions) if pool is None else pool.submit(play_turn, seat, actions)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for seat in self.seats:
            seat.env.close()
