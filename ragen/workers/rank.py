"""One of several processes that train together: sharded models, and a whole policy to play with.

Playing, and scoring what was played, need no gradients: for them each rank has a whole policy that takes over the
trained weights before its first use after an update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import Tensor

from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.distributed.sharding import Whole, gathered_state, load_optimizer
from ragen.distributed.team import Rank, ShardTeam
from ragen.learners.actor import Actor, score_logprobs
from ragen.learners.batch import Batch
from ragen.learners.critic import Critic
from ragen.learners.cross_scoring import cross_logprobs
from ragen.learners.learner import OPTIMIZER_FILE, save_model
from ragen.learners.reference import Reference
from ragen.llm_agent.agent_proxy import AgentProxy, RolloutPlan
from ragen.llm_agent.es_manager import EsManager
from ragen.modeling.finite import save_tensors
from ragen.types import Episode, Metrics
from ragen.workers.local import LocalWorkers


class RankWorkers(LocalWorkers):
    """The workers of one rank. All ranks are called with the same batches at the same time."""

    def __init__(
        self,
        config: Config,
        agent: AgentProxy,
        *,
        rank: Rank,
        actor: Actor,
        critic: Critic | None,
        reference: Reference | None,
        tokenizer: Any,
        wholes: Mapping[str, Whole],
    ) -> None:
        """`wholes`: role -> the model in one piece; the actor's is what the agent plays with."""
        super().__init__(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)
        self.rank, self.wholes = rank, wholes
        self._environments: dict[tuple[tuple[int, str], ...], EsManager] = {}

    def play(self, groups: Sequence[tuple[int, str]], group_size: int, plan: RolloutPlan) -> list[Episode]:
        """Play some groups of a rollout, given by number and tag. Levels and noise follow from the number alone."""
        self.policy()
        if not groups or self.agent.engine.follow():
            return []
        key = (*groups, (group_size, "episodes each"))
        if key not in self._environments:
            self._environments[key] = part_of_environments(self.config, groups, group_size)
        episodes = self.agent.rollout(self._environments[key], plan, lambda _: self.rank.on_progress())
        self.agent.engine.end_rollout()
        return episodes

    def policy(self) -> Any:
        """The whole policy, with the newest weights; all ranks must call this."""
        whole = self.wholes["actor"]
        whole.refresh()
        return whole.model

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        max_samples = self.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
        team = ShardTeam(self.rank)
        return score_logprobs(self.policy(), batch, temperature=self.temperature, max_samples=max_samples, team=team)

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """The columns of this rank: every world_size-th prompt."""
        own = prompts[self.rank.number :: self.rank.world_size]
        size = self.config.collapse_detection.micro_batch_size
        return cross_logprobs(self.policy(), own, continuations, micro_batch_size=size)

    def update_actor(self, batch: Batch, *, step: int) -> Metrics:
        self.wholes["actor"].is_stale = True
        return super().update_actor(batch, step=step)

    def update_critic(self, batch: Batch, *, step: int) -> Metrics:
        self.wholes["critic"].is_stale = True
        return super().update_critic(batch, step=step)

    def save(self, role: str, folder: Path) -> None:
        """What one process would save; the first rank writes it."""
        learner, whole = self.learners[role], self.wholes[role]
        whole.refresh()
        if self.rank.number == 0:
            save_model(whole.model, folder, self.tokenizer)
        if "optimizer" in learner.config.checkpoint.save_contents:
            state = gathered_state(learner.optimizer, self.rank)
            if self.rank.number == 0:
                save_tensors(state, folder / OPTIMIZER_FILE)

    def load_optimizers(self, folder: Path) -> None:
        """This rank's parts of the optimizers in a checkpoint, whatever number of ranks saved it."""
        for role, learner in self.learners.items():
            load_optimizer(learner.optimizer, folder / role)
            self.wholes[role].is_stale = True

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
