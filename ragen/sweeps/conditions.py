"""What the runs of a sweep say about each value: curves, means over seeds, intervals.

Tested in tests/sweeps/test_report.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragen.algorithms.statistics import Estimate, over_seeds
from ragen.sweeps.results import Outcome
from ragen.sweeps.run import DONE, Run, read_records
from ragen.tracking.validation import mean_success, read_validation


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """What a run left: its validation successes, and how it ended."""

    run: Run
    outcome: Outcome
    steps: list[int]
    estimates: list[Estimate]
    """[validations] Success with the interval of that validation."""
    num_episodes: int
    """Validation episodes behind each success."""
    num_levels: int
    """Levels they are played on."""

    @property
    def successes(self) -> list[float]:
        return [estimate.mean for estimate in self.estimates]

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

    @property
    def final(self) -> Estimate | None:
        """Success of the last validation; None when no run counts."""
        return over_runs([curve.estimates[-1] for curve in self.counted])

    @property
    def best(self) -> Estimate | None:
        """Success of the best validation."""
        return over_runs([curve.estimates[curve.steps.index(curve.best_step)] for curve in self.counted])

    @property
    def counted(self) -> list[Curve]:
        return [curve for curve in self.curves if curve.counts]

    @property
    def has_early_stop(self) -> bool:
        return any(curve.outcome.status == "early_stopped" for curve in self.curves)


def read_curve(run: Run, outcome: Outcome) -> Curve:
    val = read_validation(run.run_dir)
    found = [
        (record["step"], estimate)
        for record in read_records(run.run_dir)
        if (estimate := mean_success(record, val.levels)) is not None
    ]
    return Curve(
        run=run,
        outcome=outcome,
        steps=[step for step, _ in found],
        estimates=[estimate for _, estimate in found],
        num_episodes=sum(val.levels.values()) * val.group_size,
        num_levels=sum(val.levels.values()),
    )


def over_runs(estimates: Sequence[Estimate]) -> Estimate | None:
    """The mean over the runs of a value; all runs of a sweep are validated on the same levels."""
    return over_seeds(estimates, share_levels=True).as_share() if estimates else None


def read_conditions(runs: Sequence[Run], outcomes: Mapping[str, Outcome]) -> list[Condition]:
    """The values in the order they were given."""
    conditions = {run.value: Condition(value=run.value, curves=[]) for run in runs}
    for run in runs:
        conditions[run.value].curves.append(read_curve(run, outcomes[run.name]))
    return list(conditions.values())


def interval_name(conditions: Sequence[Condition]) -> str:
    """What the intervals of figure and report are."""
    kinds = []
    if counts := sorted({len(c.counted) for c in conditions if len(c.counted) > 1}):
        kinds.append(f"Student's t over {' or '.join(map(str, counts))} seeds and the validation levels they share")
    if sizes := sorted({c.counted[0].num_levels for c in conditions if len(c.counted) == 1}):
        kinds.append(f"one seed, over {' or '.join(map(str, sizes))} validation levels")
    return "95 % intervals: " + "; ".join(kinds) if kinds else "no run to estimate from"


def endings(condition: Condition) -> str:
    """How the runs of a value ended: at step 400; early stop at 120 (reward_variance_collapse: silence pays); failed"""
    words = []
    for curve in condition.curves:
        outcome = curve.outcome
        step = curve.steps[-1] if curve.steps else "?"
        words.append(
            {
                "success": f"step {step}",
                "early_stopped": f"early stop at {step} ({outcome.stop})",
                "fail": "failed",
                "missing": "not run",
            }[outcome.status]
        )
    return ", ".join(dict.fromkeys(words))
