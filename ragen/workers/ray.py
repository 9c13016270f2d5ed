"""What a trainer asks of its workers, in the processes of several devices; see rank.py for what each of them does.

Tested in tests/trainer/test_ray.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from ragen.config.schema import Config
from ragen.distributed.ranks import RankCalls, on_all_ranks
from ragen.learners.batch import Batch
from ragen.learners.gradients import Gradient, Progress
from ragen.learners.gradients import ignore as ignore_progress
from ragen.llm_agent.agent_proxy import OnEpisode, RolloutPlan, ignore, refuse_when_nothing_fits
from ragen.llm_agent.build import build_chat
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode, Metrics


class RayWorkers(RankCalls):
    """The same as LocalWorkers, on several devices."""

    logprobs: Callable[[Batch], tuple[Tensor, Tensor]] = on_all_ranks("logprobs")
    ref_logprobs: Callable[[Batch], Tensor] = on_all_ranks("ref_logprobs")
    values: Callable[[Batch], Tensor] = on_all_ranks("values")
    update_actor: Callable[..., Metrics] = on_all_ranks("update_actor")
    update_critic: Callable[..., Metrics] = on_all_ranks("update_critic")

    def __init__(self, config: Config, *args: Any, tokenizer: Any, **kwargs: Any) -> None:
        """The rest as of RankCalls."""
        self.tokenizer, self.chat = tokenizer, build_chat(config, tokenizer)
        super().__init__(config, *args, **kwargs)

    def rollout(self, environments: EsManager, plan: RolloutPlan, on_episode: OnEpisode = ignore) -> list[Episode]:
        """Each rank plays some of the groups; the answer does not depend on who plays which.

        Ranks that share an engine get the same groups, and the first of them has the episodes. `on_episode` is called
        with all of them at the end.
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

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        calls = [actor.call.remote("cross_logprobs", True, prompts, continuations) for actor in self.actors]
        parts = self.wait("cross_logprobs", calls)
        sums = torch.zeros(len(continuations), len(prompts), dtype=torch.float64)
        for number, (columns, _) in enumerate(parts):
            sums[:, number :: self.world_size] = columns
        return sums, parts[0][1]

    def gradient_components(
        self, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], progress: Progress = ignore_progress
    ) -> dict[str, dict[str, Gradient]]:
        """Nothing is known of the ranks' progress until they are done."""
        return self.call("gradient_components", batch, buckets)

    def save(self, role: str, folder: Path) -> None:
        """All ranks gather, the first one writes: it must see the folder under the same path as the driver."""
        self.call("save", role, folder.absolute())

    def snapshot_bytes(self) -> None:
        """What is saved is gathered from all ranks, part by part: they write it while everybody waits."""

    def moments_to_come(self) -> int:
        """Nothing is copied, so nobody needs to know."""
        return 0

    def reserve_snapshots(self) -> None:
        """There are none."""

    def snapshot(self, role: str) -> NoReturn:
        raise AssertionError("ranks take no snapshots")

    def synchronize(self) -> None:
        """Every call has waited for the devices already."""
