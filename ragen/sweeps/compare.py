"""`ragen compare RUN... -- RUN...`: arms of finished runs against the first of them, with seeds paired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ragen.algorithms.comparison import iqm_coverage, iqm_interval
from ragen.files import finite
from ragen.studies.arms import make_arm, read_arm_run
from ragen.studies.comparison import COLUMNS, Comparison, compare_all, how_compared, to_row
from ragen.studies.conditions import Condition, collapse_note, endings, interval_name
from ragen.tracking.console import markdown_table
from ragen.tracking.rundir import read_metrics, read_status
from ragen.tracking.validation import success_by_tag

MIN_IQM_SEEDS, MIN_IQM_TASKS = 5, 3
"""From so many on an interquartile mean over tasks and seeds is given."""


def notes_on(arms: Sequence[Condition]) -> list[str]:
    """What a reader should know of the arms beside the numbers."""
    unfinished = [curve.run.run_dir for arm in arms for curve in arm.curves if not curve.counts]
    notes = [
        f"{folder} has not ended (its status is {read_status(folder)['state']}), so it does not count."
        for folder in unfinished
    ]
    if note := collapse_note(arms):
        notes.append(f"A run that stopped early collapsed. Means are those of the other runs alone. {note}")
    return notes


def arms_table(arms: Sequence[Condition]) -> str:
    rows = [
        [
            arm.value,
            ", ".join(str(curve.run.seed) for curve in arm.curves),
            f"{arm.final:.3f}" if arm.final else "-",
            f"{arm.best:.3f}" if arm.best else "-",
            f"{len(arm.collapsed)} of {len(arm.counted)}",
            endings(arm),
        ]
        for arm in arms
    ]
    return markdown_table(("arm", "seed.train", "final success", "best success", "collapsed", "ended"), rows)


def iqm_lines(arms: Sequence[Condition]) -> list[str]:
    """The interquartile mean of each arm over tasks and seeds, where there are enough of both and none collapsed."""
    lines = []
    for arm in arms:
        scores = task_scores(arm)
        num_tasks, num_seeds = scores.shape
        if arm.collapsed or num_tasks < MIN_IQM_TASKS or num_seeds < MIN_IQM_SEEDS:
            continue
        covered = iqm_coverage(num_tasks, num_seeds)
        lines.append(
            f"{arm.value}: interquartile mean over {num_tasks} tasks and {num_seeds} seeds {iqm_interval(scores):.3f} "
            f"(stratified bootstrap, which holds the truth in {covered:.0%} of simulated studies)"
        )
    return lines


def task_scores(arm: Condition) -> np.ndarray:
    """[tasks, seeds] Success of each environment in the last validation; [0, 0] where the runs have other ones."""
    found = []
    for curve in arm.survivors:
        rows = {row["step"]: row for row in read_metrics(curve.run.run_dir)}
        found.append({tag: each.success.mean for tag, each in success_by_tag(rows[curve.steps[-1]]).items()})
    if not found or any(each.keys() != found[0].keys() for each in found):
        return np.zeros((0, 0))
    return np.array([[each[tag] for each in found] for tag in found[0]])


def report(arms: Sequence[Condition], comparisons: Sequence[Comparison], smallest: float) -> str:
    """All of it as Markdown."""
    parts = [arms_table(arms), f"Mean success of the last validation [{interval_name(arms)}].", *notes_on(arms)]
    if comparisons:
        rows = [[each.value, *to_row(each, smallest)] for each in comparisons]
        parts += [f"Success less that of {arms[0].value}:", markdown_table(("arm", *COLUMNS), rows)]
        parts.append(how_compared(comparisons))
    else:
        parts.append("There is nothing to compare: an arm has no run that ended without a collapse.")
    return "\n\n".join([*parts, *iqm_lines(arms)]) + "\n"


def to_json(arms: Sequence[Condition], comparisons: Sequence[Comparison], smallest: float) -> str:
    """The same as a record; what is not known is null."""
    record = {
        "arms": [
            {
                "name": arm.value,
                "runs": [str(curve.run.run_dir) for curve in arm.curves],
                "final": arm.final and asdict(arm.final),
                "best": arm.best and asdict(arm.best),
                "collapse": arm.collapse and asdict(arm.collapse),
            }
            for arm in arms
        ],
        "comparisons": [asdict(each) | {"verdict": each.verdict(smallest)} for each in comparisons],
    }
    return json.dumps(finite(record), indent=2)


def compare_arms(names: Sequence[str], folders: Sequence[Sequence[Path]], *, smallest: float, as_json: bool) -> str:
    """What `ragen compare` prints."""
    arms = [
        make_arm(name, [read_arm_run(name, run) for run in runs]) for name, runs in zip(names, folders, strict=True)
    ]
    comparisons = compare_all(arms, arms[0])
    return (to_json if as_json else report)(arms, comparisons, smallest)
