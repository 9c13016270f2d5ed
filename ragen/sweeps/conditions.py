"""What the runs of a sweep say about each value: curves, means over seeds, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ragen.algorithms.statistics import Estimate, proportion_interval, student_interval
from ragen.plotting.learning_curve import read_levels
from ragen.sweeps.run import DONE, Outcome, Run, read_records, success_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """What a run left: its validation successes, and how it ended."""

    run: Run
    outcome: Outcome
    steps: list[int]
    successes: list[float]
    num_episodes: int
    """Validation episodes behind each success."""

    @property
    def counts(self) -> bool:
        """A run that failed half way says nothing about its value."""
        return self.outcome.status in DONE and bool(self.steps)

    @property
    def final(self) -> float:
        return self.successes[-1]

    @property
    def best(self) -> float:
        return max(self.successes)

    @property
    def best_step(self) -> int:
        return self.steps[self.successes.index(self.best)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A value of the sweep with all its seeds."""

    value: str
    curves: list[Curve]
    final: Estimate | None
    """Success of the last validation; None when no run counts."""
    best: Estimate | None
    """Success of the best validation."""

    @property
    def counted(self) -> list[Curve]:
        return [curve for curve in self.curves if curve.counts]

    @property
    def has_early_stop(self) -> bool:
        return any(curve.outcome.status == "early_stopped" for curve in self.curves)


def estimate(values: Sequence[float], num_episodes: int) -> Estimate | None:
    """Over seeds where there are several, else over the validation episodes of the one run."""
    if len(values) > 1:
        over_seeds = student_interval(values)
        return replace(over_seeds, low=max(0.0, over_seeds.low), high=min(1.0, over_seeds.high))
    return proportion_interval(round(values[0] * num_episodes), num_episodes) if values else None


def read_curve(run: Run, outcome: Outcome) -> Curve:
    points = [(record["step"], success_of(record)) for record in read_records(run.run_dir)]
    found = [(step, success) for step, success in points if success is not None]
    has_config = (run.run_dir / "config.yaml").is_file()
    return Curve(
        run=run,
        outcome=outcome,
        steps=[step for step, _ in found],
        successes=[success for _, success in found],
        num_episodes=sum(read_levels(run.run_dir).values()) if has_config else 0,
    )


def read_conditions(runs: Sequence[Run], outcomes: Mapping[str, Outcome]) -> list[Condition]:
    """The values in the order they were given."""
    conditions = []
    for value in dict.fromkeys(run.value for run in runs):
        curves = [read_curve(run, outcomes[run.name]) for run in runs if run.value == value]
        counted = [curve for curve in curves if curve.counts]
        num_episodes = counted[0].num_episodes if counted else 0
        conditions.append(
            Condition(
                value=value,
                curves=curves,
                final=estimate([curve.final for curve in counted], num_episodes),
                best=estimate([curve.best for curve in counted], num_episodes),
            )
        )
    return conditions


def interval_name(conditions: Sequence[Condition]) -> str:
    """What the intervals of figure and report are."""
    kinds = []
    if counts := sorted({len(c.counted) for c in conditions if len(c.counted) > 1}):
        kinds.append(f"Student's t over {' or '.join(map(str, counts))} seeds")
    if sizes := sorted({c.counted[0].num_episodes for c in conditions if len(c.counted) == 1}):
        kinds.append(f"one seed, binomial over {' or '.join(map(str, sizes))} validation episodes")
    return "95 % intervals: " + "; ".join(kinds) if kinds else "no run to estimate from"


def endings(condition: Condition) -> str:
    """How the runs of a value ended: at step 400; early stop at 120 (reward_variance_collapse); failed"""
    words = []
    for curve in condition.curves:
        outcome = curve.outcome
        step = curve.steps[-1] if curve.steps else "?"
        words.append(
            {
                "success": f"step {step}",
                "early_stopped": f"early stop at {step} ({outcome.early_stop})",
                "fail": "failed",
                "missing": "not run",
            }[outcome.status]
        )
    return ", ".join(dict.fromkeys(words))
