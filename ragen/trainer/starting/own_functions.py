"""Reward and metric functions of the user's own, tried on finished episodes before a run begins.

The episodes are made up from real beginnings: each training environment starts on its first validation level and meets
silence; what a model would have said, and how it ended, is written into copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ragen.config.extensions import check_takes_one, load, refuse
from ragen.config.schema import Config
from ragen.env.base import step_info
from ragen.env.boundary import as_reward, quote
from ragen.llm_agent.es_manager import EsManager
from ragen.llm_agent.own_metrics import KEY as METRIC_KEY
from ragen.llm_agent.own_metrics import checked_metrics
from ragen.llm_agent.parsing import ANSWER, THINK
from ragen.llm_agent.policies import play_replies, silence
from ragen.llm_agent.rewards import KEY as REWARD_KEY
from ragen.seeding import Rng
from ragen.types import Episode, Status

WORD = "hello"
"""A thought, and an answer where an environment knows none."""


def check_own_functions(config: Config) -> None:
    """Refuse a reward function that gives no number, and a metric function that gives no metrics."""
    reward, metrics = config.es_manager.reward_function, config.trainer.metric_function
    if reward is not None:
        check_takes_one("rewards", reward, REWARD_KEY)
    if metrics is not None:
        check_takes_one("metrics", metrics, METRIC_KEY)
    if reward is None and metrics is None:
        return
    episodes = finished_episodes(config)
    if not episodes:  # no environment starts, which the run will tell
        return
    if reward is not None:
        check_reward_function(reward, episodes)
    if metrics is not None:
        check_metric_function(metrics, episodes)


def check_reward_function(name: str, episodes: Sequence[Episode]) -> None:
    function: Any = load("rewards", name, REWARD_KEY)
    for episode in map(deepcopy, episodes):
        tried = f"tried on a made-up episode of {episode.tag} that ended as {episode.status}, it"
        try:
            found = function(episode)
        except Exception as error:
            raise refuse(
                "rewards", name, REWARD_KEY, f"{tried} failed with {type(error).__name__}: {error}."
            ) from error
        try:
            as_reward(found)
        except ValueError as error:
            raise refuse("rewards", name, REWARD_KEY, f"{tried} returned {quote(found)}: {error}.") from error


def check_metric_function(name: str, episodes: Sequence[Episode]) -> None:
    try:
        checked_metrics(load("metrics", name, METRIC_KEY)(deepcopy(list(episodes))))
    except Exception as error:
        why = f"tried on {len(episodes)} made-up episodes, it failed with {type(error).__name__}: {error}."
        raise refuse("metrics", name, METRIC_KEY, why) from error


class AnyInfo(dict[str, float]):
    """The infos of a step; those that an environment would add of its own are 0."""

    def __missing__(self, key: str) -> float:
        return 0.0


def finished_episodes(config: Config) -> list[Episode]:
    """Of each training environment a silent episode, a solved one and a failed one."""
    manager = config.es_manager
    tags = tuple(dict.fromkeys(manager.train.env_configs.tags))
    env_configs = replace(manager.train.env_configs, tags=tags, n_groups=(1,) * len(tags))
    levels = replace(manager.train, env_groups=len(tags), group_size=1, env_configs=env_configs)
    plain = replace(config, es_manager=replace(manager, reward_function=None))
    with closing(EsManager(levels, config.custom_envs)) as environments:
        begun = play_replies(plain, environments, silence, base_seed=config.seed.val)
        answers = {seat.tag: seat.sample(Rng(0, "answer"), 1) or [WORD] for seat in environments.seats}
    found = []
    for episode in begun:
        if episode.turns and not episode.status.is_fault:
            solved, failed = (answered(episode, answers[episode.tag], is_solved=each) for each in (True, False))
            found += [spoken(episode), solved, failed]
    return found


def spoken(episode: Episode) -> Episode:
    """The episode with the tokens that a model's replies would have."""
    copy = deepcopy(episode)
    for turn in copy.turns:
        turn.prompt_ids, turn.response_ids, turn.logprobs, turn.entropies = [1, 2], [3, 4], [-0.5, -0.5], [0.5, 0.5]
        turn.info = AnyInfo(turn.info)
    return copy


def answered(episode: Episode, answer: list[str], *, is_solved: bool) -> Episode:
    """The episode with valid replies, the last of which ends it."""
    copy = spoken(episode)
    copy.status = Status.SOLVED if is_solved else Status.FAILED
    for turn in copy.turns:
        is_success = is_solved and turn is copy.turns[-1]
        turn.thought, turn.actions, turn.executed = WORD, list(answer), list(answer)
        turn.text = WORD.join(THINK) + answer[0].join(ANSWER)
        turn.is_parsed, turn.is_lenient_valid, turn.penalty, turn.reward = True, True, 0.0, float(is_success)
        info = step_info(is_valid=True, is_effective=True, is_success=is_success)
        turn.info = AnyInfo(info | {"manager_invalid_action": 0.0})
    return copy
