"""The end of a search: the scores of its settings, over seeds where there are several, and the best of them stored.

Tested in tests/legacy/test_search.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ragen.algorithms.statistics import Estimate, student_interval, unknown_interval
from ragen.studies.comparison import SMALLEST, compare_all
from ragen.studies.conditions import read_conditions
from ragen.studies.outcomes import DONE, Outcome
from ragen.sweeps.compare import report
from ragen.sweeps.driving.results import score_of
from ragen.sweeps.driving.run import Run
from ragen.tracking.console import console, print_table
from ragen.tracking.rundir import write_atomic

BEST = Path("log/searched_hyper_params")
FLATTERED = "The best is chosen by its score in these very runs, so its lead flatters it; fresh seeds would tell."

Params = dict[str, str]


class Candidate(NamedTuple):
    """A run with all its hyper-parameters, searched and fixed."""

    run: Run
    params: Params


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Values of the group with their runs."""

    value: str
    """actor_lr=1e-6"""
    candidates: list[Candidate]
    """[seeds]"""
    scores: list[float]
    """[seeds] The last validation score of each."""
    is_collapsed: bool
    """Whether one of the runs stopped early."""

    @property
    def score(self) -> Estimate:
        """The mean with Student's interval over the seeds; without one where a run collapsed, or is alone."""
        return unknown_interval(fmean(self.scores)) if self.is_collapsed else student_interval(self.scores)

    def to_json(self) -> dict[str, Any]:
        run, params = self.candidates[0]
        numbers = {name: json.loads(f"{float(value):g}") for name, value in params.items()}
        return {"experiment_name": run.name, "score": self.score.mean, **numbers}


def store_best(
    group: int, candidates: Sequence[Candidate], outcomes: Mapping[str, Outcome], *, facts: Mapping[str, str]
) -> int:
    """Show the scores and store the best setting with some facts; without a score of every run there is no best."""
    scores = {run.name: score_of(run) if outcomes[run.name].status in DONE else None for run, _ in candidates}
    title = f"Search group {group}, {facts['env_name']}"
    rows = [[name, "failed" if score is None else f"{score:.4f}"] for name, score in scores.items()]
    print_table(title, ("run", "validation score"), rows)
    failed = [run for run, _ in candidates if scores[run.name] is None]
    if failed:
        print(
            f"error: {len(failed)} of {len(scores)} runs have no score, the first: {failed[0].log}. Nothing is stored; "
            "the same command runs them again.",
            file=sys.stderr,
        )
        return 1
    known = {name: score for name, score in scores.items() if score is not None}
    settings = sorted(settings_of(candidates, known, outcomes), key=lambda setting: -setting.score.mean)
    best = settings[0]  # of equals the first
    record = {**facts, **best.to_json()}
    num_seeds = len(best.scores)
    if num_seeds > 1:
        notes = {True: " (a run collapsed)", False: ""}
        rows = [[each.value, f"{each.score:.4f}{notes[each.is_collapsed]}"] for each in settings]
        print_table(f"{title}, {num_seeds} seeds", ("setting", "mean score [95 %]"), rows)
        arms = read_conditions([run for each in settings for run, _ in each.candidates], outcomes)
        comparisons = compare_all(arms, arms[0])
        print(f"\n{report(arms, comparisons, SMALLEST)}\n{FLATTERED}")
        open_ones = [each.value for each in comparisons if each.verdict(SMALLEST) != "lower"]
        record |= {"scores": best.scores, "not_found_lower": open_ones}
    path = BEST / f"searched_params_group_{group}.json"
    write_atomic(path, json.dumps(record, indent=2) + "\n")
    console.print(f"Best: {best.value} (score {best.score.mean:.4f}), stored in {path}", soft_wrap=True)
    return 0


def settings_of(
    candidates: Sequence[Candidate], scores: Mapping[str, float], outcomes: Mapping[str, Outcome]
) -> list[Setting]:
    """The runs by setting, in the order of the plan."""
    by_value: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_value.setdefault(candidate.run.value, []).append(candidate)
    return [
        Setting(
            value=value,
            candidates=found,
            scores=[scores[run.name] for run, _ in found],
            is_collapsed=any(outcomes[run.name].status == "early_stopped" for run, _ in found),
        )
        for value, found in by_value.items()
    ]
