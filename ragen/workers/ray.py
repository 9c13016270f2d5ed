"""What a trainer asks of its workers, in the processes of several devices; see rank.py for what each of them does.

Tested in tests/trainer/test_ray.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragen.config.schema import Config
from ragen.distributed.ranks import RankCalls
from ragen.learners.batch import Batch
from ragen.learners.gradients import Gradient
from ragen.llm_agent.agent_proxy import OnEpisode, RolloutPlan, ignore, refuse_when_nothing_fits
from ragen.llm_agent.build import build_chat
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode, Metrics


class RayWorkers(RankCalls):
    """The same as LocalWorkers, on several devices."""

    def __init__(self, config: Config, *args: Any, tokenizer: Any, **kwargs: Any) -> None:
        """The rest as of RankCalls."""
        self.tokenizer, self.chat = tokenizer, build_chat(config, tokenizer)
        super().__init__(config, *args, **kwargs)

    def rollout(self, environments: EsManager, plan: RolloutPlan, on_episode: OnEpisode = ignore) -> list[Episode]:
        """Each rank plays some of the groups; the answer does not depend on who plays which.

        Ranks that share an engine get the same groups, and the first of them has the episodes.
        """
        groups = list({seat.group_id: seat.tag for seat in environments.seats}.items())
        size, sharing = environments.group_size, self.config.ranks_per_engine
        num_engines = self.world_size // sharing
        calls = [
            actor.call.remote("play", number % sharing == 0, groups[number // sharing :: num_engines], size, plan)
            for number, actor in enumerate(self.actors)
        ]
        episodes = [episode for part in self.wait("play", calls)[::sharing] for episode in part]
        refuse_when_nothing_fits(episodes)
        for episode in episodes:
            on_episode(episode)
        return sorted(episodes, key=lambda episode: (episode.group_id, episode.member))

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.call("logprobs", batch)

    def ref_logprobs(self, batch: Batch) -> Tensor:
        return self.call("ref_logprobs", batch)

    def values(self, batch: Batch) -> Tensor:
        return self.call("values", batch)

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        calls = [actor.call.remote("cross_logprobs", True, prompts, continuations) for actor in self.actors]
        parts = self.wait("cross_logprobs", calls)
        sums = torch.zeros(len(continuations), len(prompts), dtype=torch.float64)
        for number, (columns, _) in enumerate(parts):
            sums[:, number :: self.world_size] = columns
        return sums, parts[0][1]

    def update_actor(self, batch: Batch, *, step: int) -> Metrics:
        return self.call("update_actor", batch, step=step)

    def update_critic(self, batch: Batch, *, step: int) -> Metrics:
        return self.call("update_critic", batch, step=step)

    def gradient_components(
        self, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]]
    ) -> dict[str, dict[str, Gradient]]:
        return self.call("gradient_components", batch, buckets)

    def save(self, role: str, folder: Path) -> None:
        """All ranks gather, the first one writes: it must see the folder under the same path as the driver."""
        self.call("save", role, folder.absolute())

    def synchronize(self) -> None:
        """Every call has waited for the devices already."""
