"""The gradient analysis of one step, picked from the metrics of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from ragen.errors import RagenError
from ragen.plotting.history import History, Metrics, Step
from ragen.plotting.style import Interval
from ragen.tracking import names
from ragen.tracking.names import BucketMetric, Component, Measure

COMPONENTS: dict[Component, str] = {"task": "task", "entropy": "entropy", "kl": "KL"}
"""Term of the actor's loss -> its name in a figure."""
ENDS: tuple[Measure, Measure] = ("norm_low", "norm_high")
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

    def __getitem__(self, name: BucketMetric) -> float:
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

    def measured(self, measure: Measure, component: str) -> float:
        """What is known of a gradient beside its norm; NaN where nothing is, as in a bucket of one group."""
        return self.metrics.get(names.of(measure, component), math.nan)

    def interval(self, *components: Component) -> Interval:
        """The 95 % interval of a gradient norm; of several norms the sum of their intervals."""
        moving = [component for component in components if self[component] != 0]
        lows, highs = ([self.measured(end, component) for component in moving] for end in ENDS)
        return sum(lows), sum(highs)


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

    @property
    def positions(self) -> range:
        """Where the buckets stand on an axis."""
        return range(len(self.buckets))

    @property
    def std_ranges(self) -> list[Interval]:
        """Smallest and largest reward std of the groups of each bucket."""
        return [bucket.std_range for bucket in self.buckets]

    def values(self, name: BucketMetric) -> list[float]:
        return [bucket[name] for bucket in self.buckets]

    def measured(self, measure: Measure, component: str) -> list[float]:
        return [bucket.measured(measure, component) for bucket in self.buckets]

    def has(self, measure: Measure, component: str) -> bool:
        """Whether some bucket logged a measure."""
        return any(names.of(measure, component) in bucket.metrics for bucket in self.buckets)

    def is_on(self, component: Component) -> bool:
        """Whether a term of the loss has a gradient anywhere."""
        return any(value != 0 for value in self.values(component))

    def zero_reason(self, component: Component) -> str:
        """What to say of a term without any gradient. Runs of earlier versions logged angles of terms that were on."""
        pairs = [names.pair(*both) for both in combinations(COMPONENTS, 2) if component in both]
        marks = [names.of("is_probed", component), *(names.of("cosine", both) for both in pairs)]
        is_probed = any(mark in self.buckets[0].metrics for mark in marks)
        name = COMPONENTS[component]
        return f"{name} is on, but zero in every bucket" if is_probed else f"{name} is off\n(zero in every bucket)"

    def intervals(self, *components: Component) -> list[Interval] | None:
        """The interval of each bucket; None where noise was not measured."""
        if not any(self.has("norm_low", component) for component in components):
            return None
        return [bucket.interval(*components) for bucket in self.buckets]


def analysis_steps(history: History, prefix: str = names.GRADIENTS) -> list[Step]:
    """The steps with a gradient analysis; only the summary where no step has one."""
    steps: list[Step] = [step for step in sorted(history.steps) if _has_buckets(history.steps[step], prefix)]
    if steps:
        return steps
    if _has_buckets(history.summary, prefix):
        return ["summary"]
    whole = names.join(prefix, names.ALL_SAMPLES)
    has_all = any(names.below(whole, metrics) for metrics in history.steps.values())
    raise RagenError(
        f"The run {history.name} has no bucket metrics ({prefix}/bucket_*/...) in its {len(history.steps)} steps. "
        + (f"It has only {whole}: its filter gives no reward std. " if has_all else "")
        + "Train with trainer.gradient_analysis_mode=True"
        + (" and trainer.gradient_analysis_log_prefilter=True." if prefix == names.PREFILTER_GRADIENTS else ".")
    )


def _has_buckets(metrics: Mapping[str, float], prefix: str) -> bool:
    buckets = names.numbered_buckets(metrics, prefix)
    return any(value for bucket in buckets for value in names.below(names.join(prefix, bucket), metrics).values())


def pick_analysis(metrics: Metrics, step: Step, prefix: str = names.GRADIENTS) -> Analysis:
    """The buckets of a step's metrics; what is not finite becomes NaN, which charts leave out."""

    def pick(name: str) -> Bucket:
        own = names.below(names.join(prefix, name), metrics)
        finite = {key: value if math.isfinite(value) else math.nan for key, value in own.items()}
        return Bucket(name=name, metrics=finite)

    buckets = [pick(name) for name in names.numbered_buckets(metrics, prefix)]
    return Analysis(step=step, prefix=prefix, buckets=buckets, whole=pick(names.ALL_SAMPLES))


def read_analysis(history: History, step: Step, prefix: str = names.GRADIENTS) -> Analysis:
    """The analysis of a step with the tables of its groups."""
    analysis = pick_analysis(history.at(step), step, prefix)
    for bucket in analysis.buckets:
        rows = history.load_table(step, names.join(prefix, bucket.name, names.GROUP_TABLE)) or []
        stds = [float(row["reward_std"]) for row in rows if row["reward_std"] is not None]
        bucket.group_stds.extend(filter(math.isfinite, stds))
    return analysis
