"""Validation: the fixed levels of the validation set, sampled as val_kwargs say, and greedily on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean, pstdev

from ragen.algorithms.statistics import best_of, worst_of
from ragen.config.schema import Config
from ragen.engine.base import SamplingParams
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.metrics import rollout_counts, rollout_means, rollout_metrics, success_intervals
from ragen.llm_agent.own_metrics import OwnMetrics
from ragen.seeding import fixed_hash
from ragen.tracking.names import GREEDY_VALIDATION, VALIDATION, with_prefix
from ragen.trainer.held_out import PlayedLevels, held_out_metrics
from ragen.types import Episode, Metrics, group_episodes
from ragen.workers.base import Workers


class Validator:
    """Plays the validation levels; the same levels and the same noise at every validation."""

    def __init__(
        self,
        config: Config,
        workers: Workers,
        *,
        begin_episodes: Callable[[int], Callable[[Episode], None]],
        own_metrics: OwnMetrics,
    ) -> None:
        """`begin_episodes` gets the number of episodes of a rollout; what it returns gets each of them as it ends."""
        self.config, self.workers, self.begin_episodes = config, workers, begin_episodes
        self.environments = EsManager(config.es_manager.val, config.custom_envs)
        self.own_metrics = own_metrics

    def __call__(self, played: PlayedLevels) -> tuple[Metrics, list[Episode]]:
        """Metrics of all validation rollouts, and the episodes of the sampled ones; `played` are levels of training."""
        config = self.config
        params = sampling_params(config, self.workers.chat, is_validation=True)
        rollouts = [self._play(params, repeat) for repeat in range(config.trainer.validation_steps)]
        episodes = [episode for rollout in rollouts for episode in rollout]
        found = merged(list(map(rollout_means, rollouts)), fmean) | merged(list(map(rollout_counts, rollouts)), sum)
        metrics = with_prefix(VALIDATION, found)
        metrics |= with_prefix(VALIDATION, success_intervals(episodes) | held_out_metrics(episodes, played))
        metrics |= reward_statistics(episodes) | self.own_metrics(VALIDATION, episodes)
        if config.trainer.val_greedy:
            greedy = self._play(replace(params, temperature=0.0, top_p=1.0, top_k=-1), 0)
            found = rollout_metrics(greedy) | success_intervals(greedy) | held_out_metrics(greedy, played)
            metrics |= with_prefix(GREEDY_VALIDATION, found) | self.own_metrics(GREEDY_VALIDATION, greedy)
        return metrics, episodes

    def _play(self, params: SamplingParams, repeat: int) -> list[Episode]:
        seed = self.config.seed.val
        levels = levels_from(seed, self.environments.num_groups)
        plan = RolloutPlan(levels=levels, noise_seed=fixed_hash(seed, "validation", repeat), params=params)
        return self.workers.rollout(self.environments, plan, self.begin_episodes(len(self.environments.seats)))

    def close(self) -> None:
        self.environments.close()


def merged(rows: Sequence[Metrics], by: Callable[[Iterable[float]], float]) -> Metrics:
    """Each metric's mean, or sum, over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: by(row[name] for row in rows if name in row) for name in names}


def reward_statistics(episodes: Sequence[Episode]) -> Metrics:
    """Rewards per tag: mean over episodes, and the best and worst of k tries at one level.

    N is the number of tries at each level; k runs over the powers of two up to N, and N. The k tries are drawn from
    the N with replacement; mean and deviation are those of endless draws, computed exactly.
    """
    metrics: Metrics = {}
    for tag in dict.fromkeys(episode.tag for episode in episodes):
        members = [e for e in episodes if e.tag == tag and not e.status.is_fault]
        levels = [[e.score for e in group.episodes] for group in group_episodes(members)]
        num_tries = max((len(level) for level in levels), default=0)
        if not num_tries:
            continue
        metrics[f"val-core/{tag}/reward/mean@{num_tries}"] = fmean(score for level in levels for score in level)
        if num_tries == 1:
            continue
        metrics[f"val-aux/{tag}/reward/std@{num_tries}"] = fmean(pstdev(level) for level in levels)
        for k in sorted({*(2**i for i in range(1, num_tries.bit_length()) if 2**i <= num_tries), num_tries}):
            for name, pick in (("best", best_of), ("worst", worst_of)):
                means, stds = zip(*(pick(level, k) for level in levels), strict=True)
                metrics[f"val-aux/{tag}/reward/{name}@{k}/mean"] = fmean(means)
                metrics[f"val-aux/{tag}/reward/{name}@{k}/std"] = fmean(stds)
    return metrics
