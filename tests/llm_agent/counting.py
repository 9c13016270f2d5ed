"""A counting environment and the few lines it takes to play it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ragen.config.schema import AgentProxyConfig, EnvConfigsConfig, EnvSetConfig, EnvTag, RewardNormalizationConfig
from ragen.engine.base import Completion, Engine, Request, SamplingParams
from ragen.engine.scripted import ScriptedEngine
from ragen.env import Env, StepResult
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.types import Episode


@dataclass(frozen=True, kw_only=True)
class CountingConfig:
    goal: int = 3
    """Counting up to here solves the level; counting below zero loses it."""
    failing_seed: int = -1
    """The level whose reset raises."""
    step: str = "fine"
    """What a Break does: fine, raise, nan_reward, text_reward, text_info or no_observation."""
    notes: str = "Count."


class CountingEnv(Env):
    """Up counts one up and gives 1, Down counts one down and gives -0.5, Break does what the config says."""

    config_class = CountingConfig

    def reset(self, seed: int, member: int = 0) -> str:
        if seed == self.config.failing_seed:
            raise RuntimeError("no such level")
        self.seed, self.count = seed, 0
        return self.render()

    def step(self, action: int) -> StepResult:
        reward, info = {1: 1.0, 2: -0.5, 3: 0.0}[action], {"action_is_valid": 1.0, "action_is_effective": action != 3}
        if action == 3:
            reward, info = self.stumble(info)
        self.count += {1: 1, 2: -1, 3: 0}[action]
        is_success = self.count == self.config.goal
        return StepResult(
            observation=None if action == 3 and self.config.step == "no_observation" else self.render(),
            reward=reward,
            is_done=is_success or self.count < 0,
            info=info | {"success": is_success},
        )

    def stumble(self, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self.config.step == "raise":
            raise ZeroDivisionError("broken")
        reward = {"nan_reward": float("nan"), "text_reward": "much"}.get(self.config.step, 0.0)
        return reward, info | ({"mood": "bad"} if self.config.step == "text_info" else {})

    def render(self) -> str:
        return f"level {self.seed}: count {self.count}"

    @property
    def actions(self) -> dict[int, str]:
        return {1: "Up", 2: "Down", 3: "Break"}

    def notes(self) -> str:
        if self.config.notes == "raise":
            raise LookupError("no notes")
        return self.config.notes


def make_tag(
    env_type: str = "counting",
    *,
    max_actions: int = 6,
    max_workers: int = 1,
    step_timeout: float | None = 60.0,
    **env_config: Any,
) -> EnvTag:
    return EnvTag(
        env_type=env_type,
        max_actions_per_traj=max_actions,
        env_instruction="Count up.",
        max_tokens=40,
        parallel_friendly=max_workers > 1,
        max_workers=max_workers,
        step_timeout=step_timeout,
        env_config=env_config,
    )


def make_seats(*tags: EnvTag, num_groups: int = 1, group_size: int = 1) -> EsManager:
    """Tags are called tag0, tag1, ..., each with `num_groups` groups."""
    tags = tags or (make_tag(),)
    names = tuple(f"tag{number}" for number in range(len(tags)))
    env_set = EnvSetConfig(
        env_groups=num_groups * len(tags),
        group_size=group_size,
        env_configs=EnvConfigsConfig(tags=names, n_groups=(num_groups,) * len(tags)),
    )
    return EsManager(env_set, dict(zip(names, tags, strict=True)))


def make_agent(mode: str = "full", *, window: int = -1, **changes: Any) -> AgentProxyConfig:
    agent = AgentProxyConfig(
        context_window_mode=mode,  # pyright: ignore[reportArgumentType]
        max_context_window=window,
        max_turn=5,
        action_sep="||",
        max_actions_per_turn=2,
        example_answer=False,
        answer_parsing="strict",
        enforce_max_tokens=False,
        use_turn_scores=False,
        enable_think=True,
        reward_normalization=RewardNormalizationConfig(grouping="state", method="identity"),
    )
    return replace(agent, **changes)


def answer(actions: str) -> str:
    """What a model writes behind the forced think tag."""
    return f"go</think><answer>{actions}</answer>"


def script(*replies: str | list[int]) -> Callable[[Request], str | list[int]]:
    """Every session gives these replies, one per turn; the last one is repeated."""
    asked: Counter[int] = Counter()

    def reply(request: Request) -> str | list[int]:
        asked[request.session] += 1
        return replies[min(asked[request.session], len(replies)) - 1]

    return reply


class RecordingEngine(Engine):
    """Passes everything on and remembers it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: list[Request] = []
        self.completions: list[Completion] = []
        self.released: list[int] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        self.engine.submit(request)

    def step(self) -> list[Completion]:
        completions = self.engine.step()
        self.completions += completions
        return completions

    def release(self, session: int) -> None:
        self.released.append(session)
        self.engine.release(session)

    def close(self) -> None:
        self.engine.close()

    def of_session(self, session: int) -> list[tuple[Request, Completion]]:
        """The turns of one episode."""
        requests = [request for request in self.requests if request.session == session]
        completions = [completion for completion in self.completions if completion.session == session]
        return list(zip(requests, completions, strict=True))


def rollout(
    engine: Engine,
    chat: Chat | None = None,
    seats: EsManager | None = None,
    agent: AgentProxyConfig | None = None,
    *,
    response_length: int = 100,
    max_model_len: int = 4000,
    base_seed: int = 7,
    noise_seed: int = 0,
    on_episode: Callable[[Episode], None] = lambda _: None,
) -> list[Episode]:
    proxy = AgentProxy(
        engine,
        chat,
        agent or make_agent(),
        format_penalty=-0.1,
        response_length=response_length,
        max_model_len=max_model_len,
    )
    params = SamplingParams(
        max_tokens=response_length,
        stop_token_ids=chat.stop_token_ids if chat else (),
        stop_strings=("</answer>",),
    )
    seats = seats or make_seats()
    plan = RolloutPlan(levels=levels_from(base_seed, seats.num_groups), noise_seed=noise_seed, params=params)
    return proxy.rollout(seats, plan, on_episode)


def play(*replies: str, tag: EnvTag | None = None, **agent: Any) -> Episode:
    """One episode of the counting environment with a text engine that gives these replies."""
    [episode] = rollout(
        ScriptedEngine(script(*replies)), seats=make_seats(tag or make_tag()), agent=make_agent(**agent)
    )
    return episode


def users(episode: Episode) -> list[str]:
    return [turn.user for turn in episode.turns]


def statuses(episodes: Iterable[Episode]) -> list[str]:
    return [episode.status.value for episode in episodes]
