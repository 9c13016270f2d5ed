"""Gradient analysis: the parts of the actor's loss, probed by reward-variance bucket, without any update.

Groups whose rewards vary carry the task's signal, the others mostly noise and regularisation: this measures whether
that is so. The metrics are described in docs/guide_gradient_analysis.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

from ragen.algorithms.group_advantage import group_statistics
from ragen.algorithms.rollout_filter import BUCKET_MODES, FilterResult, FilterSettings, RolloutFilter
from ragen.config.schema import Config, EnvSetConfig
from ragen.config.seeds import first_clear_seed, validation_levels
from ragen.config.shares import shares
from ragen.diagnostics.noise import ROUNDING, cosine, measure_noise
from ragen.learners.batch import Batch
from ragen.learners.gradients import COMPONENTS, Gradient, Progress
from ragen.llm_agent.agent_proxy import RolloutPlan
from ragen.llm_agent.build import sampling_params
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.seeding import fixed_hash
from ragen.tracking import names
from ragen.types import Group, Metrics, group_episodes
from ragen.workers.base import Workers

MAX_FOLDS = 32
"""Parts of a bucket of which sketches are kept."""

Score = Callable[[Sequence[Group], float], Batch]
"""Groups and the kept ratio -> a scored batch, as in training."""
BeginEpisodes = Callable[[int], Callable[[Any], None]]
"""Gets a number of episodes; what it returns is called as each of them is done."""
LogTable = Callable[[int, str, Sequence[str], Sequence[Sequence[object]]], None]


class BucketReport(NamedTuple):
    """What is known of a bucket: metrics without their prefix, and the reward deviation of each group."""

    metrics: Metrics
    stds: dict[int, float]


class GradientReporter:
    """Probes the actor; TrainerConfig.is_analysed says when."""

    def __init__(
        self,
        config: Config,
        workers: Workers,
        *,
        score: Score,
        log_table: LogTable,
        train_seed: int,
        on_stage: Callable[[str], None] = lambda _: None,
        begin_episodes: BeginEpisodes = lambda _: lambda _: None,
    ) -> None:
        """`on_stage` and `begin_episodes` tell a live display what is going on, and how far it has come."""
        self.config, self.workers, self.score, self.log_table = config, workers, score, log_table
        self.train_seed, self.on_stage, self.begin_episodes = train_seed, on_stage, begin_episodes
        self.rollout_filter = RolloutFilter(FilterSettings.from_config(config.actor_rollout_ref.rollout))
        trainer = config.trainer
        self.env_set = analysis_env_set(
            config.es_manager.train,
            env_groups=trainer.gradient_analysis_env_groups,
            group_size=trainer.gradient_analysis_group_size,
        )
        self.has_own_rollout = trainer.gradient_analysis_env_groups or trainer.gradient_analysis_group_size
        self.environments: EsManager | None = None

    def __call__(self, step: int, groups: Sequence[Group], kept: FilterResult, batch: Batch | None) -> Metrics:
        """Analyse a rollout of its own, or the training batch; `batch` is None when the filter kept nothing of it."""
        if self.has_own_rollout:
            groups = self.rollout(step)
            kept = self.rollout_filter(groups)
            self.on_stage("gradient_analysis scoring")
            batch = self.score(kept.kept, kept.kept_ratio) if kept.kept else None
        metrics = {
            "grad_analysis/uses_training_batch": float(not self.has_own_rollout),
            "grad_analysis/source_env_groups": float(self.env_set.env_groups),
            "grad_analysis/source_group_size": float(self.env_set.group_size),
            "grad_analysis/source_batch_size": float(sum(len(group.episodes) for group in groups)),
            "grad_analysis/adjusted_batch_size": float(len(batch) if batch else 0),
            "grad_analysis/empty_after_filter": float(batch is None),
        }
        metrics |= names.with_prefix("grad_analysis", kept.metrics)
        found = self.report(step, batch) if batch is not None else {}
        if self.config.trainer.gradient_analysis_log_prefilter and groups:
            # Nothing dropped: the same samples with the same weights.
            is_same = batch is not None and len(kept.kept) == len(groups)
            whole = batch if batch is not None and is_same else self.score(groups, 1.0)
            metrics |= self.log(step, names.PREFILTER_GRADIENTS, found if is_same else self.report(step, whole))
            metrics["grad_analysis_prefilter/source_batch_size"] = metrics["grad_analysis/source_batch_size"]
            metrics["grad_analysis_prefilter/adjusted_batch_size"] = float(len(whole))
        if found:
            metrics |= self.log(step, names.GRADIENTS, found)
            whole_batch = found[names.ALL_SAMPLES].metrics
            metrics |= {f"actor/grad_norm/{component}": whole_batch[component] for component in COMPONENTS}
            losses = [names.of("loss", loss) for loss in (*names.LOSSES.values(), "total")]
            metrics |= names.with_prefix(names.ACTOR, {loss: whole_batch[loss] for loss in losses})
        return metrics

    def rollout(self, step: int) -> list[Group]:
        """Levels and noise of their own, clear of validation: what training plays is not moved."""
        if self.environments is None:
            self.environments = EsManager(self.env_set, self.config.custom_envs)
        seed = fixed_hash(self.train_seed, "gradient analysis", step)
        num_groups = self.env_set.env_groups
        base_seed = first_clear_seed(seed % 2**31, num_groups, validation_levels(self.config))
        plan = RolloutPlan(
            levels=levels_from(base_seed, num_groups),
            noise_seed=seed,
            params=sampling_params(self.config, self.workers.chat, is_validation=False),
        )
        self.on_stage("gradient_analysis rollout")
        on_episode = self.begin_episodes(num_groups * self.env_set.group_size)
        episodes = self.workers.rollout(self.environments, plan, on_episode)
        return [group for group in group_episodes(episodes) if group.is_complete]

    def report(self, step: int, batch: Batch) -> dict[str, BucketReport]:
        """Every bucket of a scored batch, and the whole batch as the bucket `all`."""
        rollout = self.config.actor_rollout_ref.rollout
        stds = dict(zip(batch.groups.tolist(), batch.reward_std.tolist(), strict=True))
        statistics = group_statistics(batch.scores, batch.groups, batch.episodes)
        means = dict(zip(batch.groups.tolist(), statistics.mean.tolist(), strict=True))
        mode = BUCKET_MODES[rollout.gradient_analysis_bucket_mode]
        buckets = mode.cut(means if mode.by == "mean" else stds, rollout.gradient_analysis_num_buckets)
        parts = {name: folds(batch, groups) for name, groups in buckets.items()}
        gradients = self.workers.gradient_components(
            batch, parts, self.progress({name: sum(map(len, each)) for name, each in parts.items()})
        )
        actor = self.config.actor_rollout_ref.actor
        coefficients = {"task": 1.0, "entropy": abs(actor.entropy_coeff), "kl": actor.kl_loss_coef or 1.0}
        least = ROUNDING * longest(gradients, coefficients)
        reports = {}
        for name, groups in (buckets | {names.ALL_SAMPLES: sorted(stds)}).items():
            chosen = {group: stds[group] for group in groups}
            is_inside = [group in chosen for group in batch.groups.tolist()]
            num_samples, num_tokens = sum(is_inside), batch.mask[is_inside].sum().item()
            found = {component: rows[name] for component, rows in gradients.items()}
            metrics = {
                "sample_count": float(num_samples),
                "sample_pct": num_samples / len(batch),
                "reward_mean": fmean(means[group] for group in chosen),
                "reward_std_mean": fmean(chosen.values()),
                "reward_std_min": min(chosen.values()),
                "reward_std_max": max(chosen.values()),
                "group_rv_count": float(len(groups)),
            }
            metrics |= bucket_metrics(found, num_samples, num_tokens)
            metrics |= noise_metrics(
                found,
                num_groups=len(groups),
                directed={c for c, gradient in found.items() if gradient.norm > least * coefficients[c]},
                seed=fixed_hash(self.train_seed, "gradient noise", step, name) % 2**63,
            )
            reports[name] = BucketReport(metrics, chosen)
        return reports

    def progress(self, sizes: Mapping[str, int]) -> Progress:
        """Shows each bucket, of so many samples, as a stage of its own, with the parts of the loss and what is done."""
        shown: dict[str, Callable[[Any], None]] = {}

        def show(bucket: str, components: Sequence[str], num_done: int) -> None:
            stage = f"gradient_analysis {bucket} of {len(sizes)}: {', '.join(components)}"
            if not num_done:  # a bucket begins, or begins again where a faster way has failed
                self.on_stage(stage)
                shown[stage] = self.begin_episodes(sizes[bucket])
            for _ in range(num_done):
                shown[stage](None)

        return show

    def log(self, step: int, prefix: str, reports: Mapping[str, BucketReport]) -> Metrics:
        """The metrics under a prefix; the tables of groups go to the trackers at once."""
        metrics: Metrics = {}
        for name, report in reports.items():
            rows = [[name, group, std] for group, std in report.stds.items()]
            bucket = names.join(prefix, name)
            self.log_table(step, names.join(bucket, names.GROUP_TABLE), ["bucket", "group_id", "reward_std"], rows)
            metrics |= names.with_prefix(bucket, report.metrics)
        return metrics

    def close(self) -> None:
        if self.environments is not None:
            self.environments.close()


def bucket_metrics(found: Mapping[str, Gradient], num_samples: int, num_tokens: float) -> Metrics:
    """Norms and losses of a bucket; 0 for a component that is off."""
    metrics: Metrics = {}
    for component in COMPONENTS:
        norm, loss = (found[component].norm, found[component].loss) if component in found else (0.0, 0.0)
        metrics |= {
            component: norm,
            names.of("per_sample", component): norm / num_samples,
            names.of("per_token", component): norm / max(1.0, num_tokens),
            names.of("loss", names.LOSSES[component]): loss,
        }
    metrics[names.of("loss", "total")] = sum(gradient.loss for gradient in found.values())
    return metrics


def noise_metrics(found: Mapping[str, Gradient], *, num_groups: int, directed: Collection[str], seed: int) -> Metrics:
    """How much of each norm is signal, and the angles between the components; only `directed` ones have a direction."""
    metrics: Metrics = {}
    for component, gradient in found.items():
        metrics[names.of("is_probed", component)] = 1.0
        noise = measure_noise(gradient.norm, gradient.sketches, gradient.masses, num_groups=num_groups, seed=seed)
        for measure, value in asdict(noise).items() if noise else ():
            if value is not None and (component in directed or measure != "split_half_cosine"):
                metrics[names.join(measure, component)] = value
    for first, second in combinations([component for component in found if component in directed], 2):
        metrics[names.of("cosine", names.pair(first, second))] = cosine(found[first].sketches, found[second].sketches)
    return metrics


def longest(gradients: Mapping[str, Mapping[str, Gradient]], coefficients: Mapping[str, float]) -> float:
    """The longest gradient of any component and bucket, before its coefficient: what rounding is relative to."""
    return max(row.norm / coefficients[component] for component, rows in gradients.items() for row in rows.values())


def folds(batch: Batch, groups: Sequence[int]) -> list[list[int]]:
    """The samples of a bucket's groups in at most MAX_FOLDS parts of whole groups."""
    count = min(MAX_FOLDS, len(groups))
    fold_of = {group: number % count for number, group in enumerate(sorted(groups))}
    parts: list[list[int]] = [[] for _ in range(count)]
    for index, group in enumerate(batch.groups.tolist()):
        if group in fold_of:
            parts[fold_of[group]].append(index)
    return parts


def analysis_env_set(env_set: EnvSetConfig, *, env_groups: int | None, group_size: int | None) -> EnvSetConfig:
    """The training environments in another number; tags keep their proportions (largest remainders).

    n_groups [3, 1] with 6 groups -> [5, 1]: 4.5 and 1.5, and the first of equal remainders wins
    """
    total = env_groups or env_set.env_groups
    configs = replace(env_set.env_configs, n_groups=tuple(shares(env_set.env_configs.n_groups, total)))
    return replace(env_set, env_groups=total, group_size=group_size or env_set.group_size, env_configs=configs)
