"""The records of a claim: the published sentence, the arms that decide it, and what was found.

Tested in tests/reproduce/test_plan.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ragen.algorithms.comparison import Gap, paired_gap
from ragen.algorithms.statistics import Estimate
from ragen.studies.comparison import pair_seeds
from ragen.studies.conditions import Condition, Curve
from ragen.studies.outcomes import DONE

Budget = Literal["minutes", "hour", "day"]
Verdict = Literal["holds", "does not hold", "cannot tell"]

BUDGETS: dict[Budget, str] = {
    "minutes": "two CPU cores, embedded models",
    "hour": "one GPU, a model of 0.5B parameters",
    "day": "the published size",
}
SEEDS: dict[Budget, int] = {"minutes": 5, "hour": 3, "day": 1}
"""Of every arm, unless one says otherwise."""
THOUGHTS = (
    "The thoughts of the embedded models are the fixed phrases of their teacher, so nothing about thoughts can be "
    "measured on them."
)
"""Why claims about thoughts are not testable with the embedded models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One way of training: a configuration and what differs from it."""

    config_name: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Key -> value as Hydra reads it."""
    demonstrations: Mapping[str, str] = field(default_factory=dict)
    """Of a run that starts with supervised training: keys of `ragen sft`."""
    seconds: float
    """About what a run takes on the machine of its budget, for plans."""
    gigabytes: float = 0.01
    """About what it leaves on the disk: metrics and episodes, and checkpoints where it saves any."""

    def but(self, overrides: Mapping[str, str], *, times: float = 1.0) -> Arm:
        """The same with other values, which takes so many times as long."""
        return replace(self, overrides={**self.overrides, **overrides}, seconds=self.seconds * times)

    @property
    def steps(self) -> int:
        return int(self.overrides["trainer.total_training_steps"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A number of ours, and the published one beside it where there is one."""

    label: str
    ours: Estimate
    published: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What the runs say about a claim."""

    verdict: Verdict
    ours: str
    """The numbers behind the verdict, in a sentence."""
    points: tuple[Point, ...] = ()
    """What the figure shows; those of which no run had a number are left out."""
    seeds_needed: int | None = None
    """Where it cannot be told: the seeds that would tell what is worth finding, in four of five studies."""

    def __post_init__(self) -> None:
        known = tuple(point for point in self.points if not math.isnan(point.ours.mean))
        object.__setattr__(self, "points", known)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What the runs of a claim left."""

    arms: Mapping[str, Condition]
    """Name of the arm -> its runs, one for each seed."""

    def folders(self, arm: str) -> list[Path]:
        """The run directories that have ended, whether or not they validated."""
        return [curve.run.run_dir for curve in self.arms[arm].curves if curve.outcome.status in DONE]

    def curves(self, arm: str) -> list[Curve]:
        """The runs that have ended and validated, those that stopped early among them."""
        return self.arms[arm].counted

    def paired(self, one: str, other: str, measure: Callable[[Curve], float]) -> Gap:
        """One arm minus another by pairs of seeds, among the runs that did not collapse."""
        pairs = pair_seeds(self.arms[one], self.arms[other])
        differences = [measure(mine) - measure(theirs) for mine, theirs in pairs]
        return paired_gap(differences or [math.nan])


Judge = Callable[[Evidence], Finding]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One published sentence and how it is settled."""

    number: int
    sentence: str
    source: str
    published: str
    """The published number, with what it is of."""
    measured: str
    """What the points of a finding are, for the figure and the table."""
    rule: str
    """When it holds and when it does not, in words; `judge` is the same as a function."""
    judge: Judge | None = None
    """None where nothing can be judged, see `not_testable`."""
    arms: Mapping[Budget, Mapping[str, Arm]] = field(default_factory=dict)
    """Budget -> name of the arm -> what is run; empty arms: everything is computed by `judge`."""
    not_testable: Mapping[Budget, str] = field(default_factory=dict)
    """Budget -> why it cannot decide this claim."""

    @property
    def name(self) -> str:
        return f"C{self.number}"

    @property
    def budgets(self) -> list[Budget]:
        """Those that can decide it."""
        return [budget for budget in BUDGETS if budget in self.arms]
