"""What the runs of a sweep say about each value: curves, means over seeds, intervals.

Tested in tests/sweeps/test_report.py and tests/view/reading/test_sweeps.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ragen.algorithms.comparison import area, wilson_coverage
from ragen.algorithms.statistics import Estimate, over_seeds, proportion_interval, unknown_interval
from ragen.studies.outcomes import DONE, Outcome
from ragen.tracking.rundir import read_records
from ragen.tracking.validation import mean_success, read_validation


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """A run of a list: as it was planned, or as its record tells."""

    name: str
    """Its experiment name, which no other run of the list has."""
    run_dir: Path
    """Its run directory: metrics.jsonl, status.json, checkpoints."""
    value: str = ""
    """What the list varies, as typed."""
    seed: int = 1
    """1 is the plain run; 2, 3, ... repeat it with other random numbers. Of arms it is seed.train."""


R = TypeVar("R", bound=ListedRun)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """What a run left: its validation successes, and how it ended."""

    run: ListedRun
    outcome: Outcome
    steps: list[int]
    estimates: list[Estimate]
    """[validations] Success with the interval of that validation."""
    num_episodes: int
    """Validation episodes behind each success."""
    num_levels: int
    """Levels they are played on."""
    last_step: int | None = None
    """Last step of the run, validated or not; None where that is not known."""

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

    @property
    def area(self) -> float:
        """Mean success over the whole training."""
        return area(self.steps, self.successes)

    @property
    def is_collapsed(self) -> bool:
        """A run that stopped early is a failed regime, not a shorter success."""
        return self.outcome.status == "early_stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """A value of the sweep with all its seeds.

    Means are those of the runs that did not collapse. Where one did, they are the better half of the story, so they
    have no interval, and the share of collapsed runs stands beside them.
    """

    value: str
    curves: list[Curve]
    share_levels: bool = True
    """Whether all seeds are validated on the same levels, as those of a sweep are; not those of the study."""

    @property
    def first(self) -> Estimate | None:
        """Success of the first validation; of all runs, since none had collapsed by then."""
        return self._mean([curve.estimates[0] for curve in self.counted], is_known=True)

    @property
    def final(self) -> Estimate | None:
        """Success of the last validation; None when no run is left to tell it from."""
        return self._mean([curve.estimates[-1] for curve in self.survivors], is_known=not self.collapsed)

    @property
    def best(self) -> Estimate | None:
        """Success of the best validation."""
        best = [curve.estimates[curve.steps.index(curve.best_step)] for curve in self.survivors]
        return self._mean(best, is_known=not self.collapsed)

    @property
    def collapse(self) -> Estimate | None:
        """Share of the runs that collapsed, with Wilson's interval."""
        return proportion_interval(len(self.collapsed), len(self.counted)) if self.counted else None

    def _mean(self, estimates: Sequence[Estimate], *, is_known: bool) -> Estimate | None:
        if not estimates:
            return None
        mean = over_seeds(estimates, share_levels=self.share_levels).as_share()
        return mean if is_known else unknown_interval(mean.mean)

    @property
    def counted(self) -> list[Curve]:
        return [curve for curve in self.curves if curve.counts]

    @property
    def survivors(self) -> list[Curve]:
        return [curve for curve in self.counted if not curve.is_collapsed]

    @property
    def collapsed(self) -> list[Curve]:
        return [curve for curve in self.counted if curve.is_collapsed]


def read_curve(run: ListedRun, outcome: Outcome) -> Curve:
    val, records = read_validation(run.run_dir), read_records(run.run_dir)
    found = [
        (record["step"], estimate) for record in records if (estimate := mean_success(record, val.levels)) is not None
    ]
    return Curve(
        run=run,
        outcome=outcome,
        steps=[step for step, _ in found],
        estimates=[estimate for _, estimate in found],
        num_episodes=sum(val.levels.values()) * val.group_size,
        num_levels=sum(val.levels.values()),
        last_step=records[-1]["step"] if records else None,
    )


def share_levels(val_seeds: Sequence[str]) -> bool:
    """Whether runs with these seeds of validation are validated on the same levels: two of them at least, or one run.

    ["123", "123", "123"] -> True, ["1", "2", "3"] -> False
    """
    return len(val_seeds) < 2 or len(set(val_seeds)) < len(val_seeds)


def read_conditions(
    runs: Sequence[R], outcomes: Mapping[str, Outcome], *, read: Callable[[R, Outcome], Curve] = read_curve
) -> list[Condition]:
    """The values in the order they were given."""
    conditions = {run.value: Condition(value=run.value, curves=[]) for run in runs}
    for run in runs:
        conditions[run.value].curves.append(read(run, outcomes[run.name]))
    return list(conditions.values())


def interval_name(conditions: Sequence[Condition]) -> str:
    """What the intervals of figure and report are."""
    kinds, whole = [], [condition for condition in conditions if not condition.collapsed]
    for share_levels, end in ((True, " and the validation levels they share"), (False, ", at least their own error")):
        several = {len(c.counted) for c in whole if len(c.counted) > 1 and c.share_levels is share_levels}
        if several:
            kinds.append(f"Student's t over {' or '.join(map(str, sorted(several)))} seeds{end}")
    if sizes := sorted({c.counted[0].num_levels for c in whole if len(c.counted) == 1}):
        kinds.append(f"one seed, over {' or '.join(map(str, sizes))} validation levels")
    if len(whole) < len(conditions):
        kinds.append("none where a run collapsed")
    return "95 % intervals: " + "; ".join(kinds) if any(c.counted for c in conditions) else "no run to estimate from"


def collapse_note(conditions: Sequence[Condition]) -> str:
    """How many runs of each value collapsed; empty where none did.

    Collapsed runs: 0.1: 1 of 3, 0.33 [0.06, 0.79] (Wilson's interval, which covers 95.6 % over all shares with 3 runs).
    """
    failed = [condition for condition in conditions if condition.collapsed]
    if not failed:
        return ""
    shares = [f"{each.value}: {len(each.collapsed)} of {len(each.counted)}, {each.collapse:.2f}" for each in failed]
    counts = sorted({len(each.counted) for each in failed})
    covered = ", ".join(f"{wilson_coverage(count):.1%} with {count} runs" for count in counts)
    return f"Collapsed runs: {'; '.join(shares)}. Wilson's interval covers, on average over all true shares, {covered}."


def endings(condition: Condition) -> str:
    """How the runs of a value ended: step 400, early stop at 120 (reward_variance_collapse: silence pays), failed"""
    words = []
    for curve in condition.curves:
        outcome = curve.outcome
        step = curve.steps[-1] if curve.steps else "?"
        stopped = step if curve.last_step is None else curve.last_step
        words.append(
            {
                "success": f"step {step}",
                "early_stopped": f"early stop at {stopped} ({outcome.stop})",
                "fail": "failed",
                "missing": f"not yet, step {step}" if curve.steps else "not run",
            }[outcome.status]
        )
    return ", ".join(dict.fromkeys(words))
