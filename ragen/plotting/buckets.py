"""The gradient analysis of one step, picked from the metrics of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ragen.errors import RagenError
from ragen.plotting.history import History, Metrics, Step
from ragen.plotting.style import Interval

COMPONENTS = {"task": "task", "entropy": "entropy", "kl": "KL"}
"""Term of the actor's loss -> its name in a figure."""
PREFIX = "grad_norm"
PREFILTER_PREFIX = "grad_norm_prefilter"
TABLE_TOLERANCE = 1e-3
"""A table whose extremes differ more than this from the logged ones describes other groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """One reward-variance bucket, or all samples."""

    name: str
    metrics: Metrics
    """Names without prefix and bucket: task, reward_std_mean, loss/policy, ..."""
    group_stds: list[float] = field(default_factory=list)
    """Reward std of each group, from the table of the bucket."""

    @property
    def label(self) -> str:
        """bucket_3 -> Q3"""
        return self.name.replace("bucket_", "Q")

    def __getitem__(self, name: str) -> float:
        """A metric of the bucket; one that was not logged counts as 0."""
        return self.metrics.get(name, 0.0)

    @property
    def std_range(self) -> Interval:
        """Smallest and largest reward std of the groups."""
        return self["reward_std_min"], self["reward_std_max"]

    @property
    def has_true_table(self) -> bool:
        """Whether the groups of the table are those that the logged numbers describe."""
        if not self.group_stds:
            return False
        ends = (min(self.group_stds), max(self.group_stds))
        return all(abs(end - logged) <= TABLE_TOLERANCE for end, logged in zip(ends, self.std_range, strict=True))

    def measured(self, name: str) -> float:
        """A noise measure of the bucket; NaN where there is none, as in a bucket of one group."""
        return self.metrics.get(name, math.nan)

    def interval(self, components: Sequence[str]) -> Interval:
        """The 95 % interval of a gradient norm; of several norms the sum of their intervals."""
        moving = [component for component in components if self[component] != 0]
        low, high = (sum(self.measured(f"norm_{end}/{component}") for component in moving) for end in ("low", "high"))
        return low, high


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """All buckets of one step, lowest reward variance first."""

    step: Step
    prefix: str
    buckets: list[Bucket]
    whole: Bucket
    """All samples, without bucketing."""

    @property
    def labels(self) -> list[str]:
        return [bucket.label for bucket in self.buckets]

    def values(self, name: str) -> list[float]:
        return [bucket[name] for bucket in self.buckets]

    def measured(self, name: str) -> list[float]:
        return [bucket.measured(name) for bucket in self.buckets]

    def has(self, name: str) -> bool:
        """Whether some bucket logged a metric."""
        return any(name in bucket.metrics for bucket in self.buckets)

    def is_on(self, component: str) -> bool:
        """Whether a term of the loss has a gradient anywhere."""
        return any(value != 0 for value in self.values(component))

    def why_zero(self, component: str) -> str:
        """What to say of a term without any gradient. Runs of earlier versions logged angles of terms that were on."""
        logged = self.buckets[0].metrics
        is_probed = any(key.startswith(("is_probed/", "cosine/")) and component in key for key in logged)
        name = COMPONENTS[component]
        return f"{name} is on, but zero in every bucket" if is_probed else f"{name} is off\n(zero in every bucket)"

    def intervals(self, *components: str) -> list[Interval] | None:
        """The interval of each bucket; None where noise was not measured."""
        if not any(self.has(f"norm_low/{component}") for component in components):
            return None
        return [bucket.interval(components) for bucket in self.buckets]


def bucket_names(names: Iterable[str], prefix: str) -> list[str]:
    """The buckets that metric names mention, by number: bucket_2 before bucket_10."""
    pattern = re.compile(rf"{re.escape(prefix)}/bucket_(\d+)/")
    return [f"bucket_{n}" for n in sorted({int(match[1]) for match in map(pattern.match, names) if match})]


def analysis_steps(history: History, prefix: str = PREFIX) -> list[Step]:
    """The steps with a gradient analysis; only the summary where no step has one."""
    steps: list[Step] = [step for step in sorted(history.steps) if _has_buckets(history.steps[step], prefix)]
    if steps:
        return steps
    if _has_buckets(history.summary, prefix):
        return ["summary"]
    raise RagenError(
        f"The run {history.name} has no bucket metrics ({prefix}/bucket_*/...) in its {len(history.steps)} steps. "
        + (f"It has only {prefix}/all: its filter gives no reward std. " if _has_all(history, prefix) else "")
        + "Train with trainer.gradient_analysis_mode=True and a reward-variance filter"
        + (" and trainer.gradient_analysis_log_prefilter=True." if prefix == PREFILTER_PREFIX else ".")
    )


def _has_buckets(metrics: Mapping[str, float], prefix: str) -> bool:
    return any(value for name, value in metrics.items() if name.startswith(f"{prefix}/bucket_"))


def _has_all(history: History, prefix: str) -> bool:
    return any(name.startswith(f"{prefix}/all/") for metrics in history.steps.values() for name in metrics)


def pick_bucket(metrics: Metrics, prefix: str, name: str, group_stds: list[float] | None = None) -> Bucket:
    """The metrics of a bucket; what is not finite becomes NaN, which charts leave out."""
    start = f"{prefix}/{name}/"
    own = {key.removeprefix(start): value for key, value in metrics.items() if key.startswith(start)}
    own = {key: value if math.isfinite(value) else math.nan for key, value in own.items()}
    return Bucket(name=name, metrics=own, group_stds=group_stds or [])


def read_analysis(history: History, step: Step, prefix: str = PREFIX) -> Analysis:
    """The analysis of a step with the tables of its groups."""
    metrics = history.at(step)
    buckets = []
    for name in bucket_names(metrics, prefix):
        rows = history.load_table(step, f"{prefix}/{name}/group_rv_table") or []
        stds = [float(row["reward_std"]) for row in rows if row["reward_std"] is not None]
        buckets.append(pick_bucket(metrics, prefix, name, [std for std in stds if math.isfinite(std)]))
    return Analysis(step=step, prefix=prefix, buckets=buckets, whole=pick_bucket(metrics, prefix, "all"))
