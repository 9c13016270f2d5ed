"""One of several processes that train together: sharded models, and a whole policy to play with.

Playing, and scoring what was played, need no gradients: for them each rank has a whole policy that takes over the
trained weights before its first use after an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from torch import Tensor

from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.distributed.team import Rank
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode
from ragen.workers.local import LocalWorkers


class RankWorkers(LocalWorkers):
    """The workers of one rank. All ranks are called with the same batches at the same time."""

    def __init__(self, config: Config, agent: AgentProxy, *, rank: Rank, **parts: Any) -> None:
        """`parts`: as of LocalWorkers. The agent plays with the full copy of the actor."""
        super().__init__(config, agent, **parts)
        self.rank = rank
        self._environments: dict[tuple[tuple[int, str], ...], EsManager] = {}

    def play(self, groups: Sequence[tuple[int, str]], group_size: int, plan: RolloutPlan) -> list[Episode]:
        """Play some groups of a rollout, given by number and tag. Levels and noise follow from the number alone."""
        self.policy()
        if self.agent.engine.follow():
            return []
        episodes = []
        if groups:
            key = (*groups, (group_size, "episodes each"))
            if key not in self._environments:
                self._environments[key] = part_of_environments(self.config, groups, group_size)
            episodes = self.agent.rollout(self._environments[key], plan, lambda _: self.rank.on_progress())
        # Without groups, too: what the engine counts is of this rollout then, not of the one before.
        self.agent.engine.end_rollout()
        return episodes

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """The columns of this rank: every world_size-th prompt."""
        return super().cross_logprobs(prompts[self.rank.number :: self.rank.world_size], continuations)

    def close(self) -> None:
        super().close()
        for environments in self._environments.values():
            environments.close()


def part_of_environments(config: Config, groups: Sequence[tuple[int, str]], group_size: int) -> EsManager:
    """The seats of some groups of a rollout; groups keep their numbers, which their levels and noise follow from."""
    runs = [(tag, len(list(found))) for tag, found in groupby(tag for _, tag in groups)]
    tags, counts = zip(*runs, strict=True)
    env_set = EnvSetConfig(
        env_groups=len(groups), group_size=group_size, env_configs=EnvConfigsConfig(tags=tags, n_groups=counts)
    )
    environments = EsManager(env_set, config.custom_envs)
    for seat in environments.seats:
        seat.group_id = groups[seat.group_id][0]
    return environments
