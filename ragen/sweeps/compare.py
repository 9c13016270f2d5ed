"""`ragen compare RUN... -- RUN...`: arms of finished runs against the first of them, with seeds paired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ragen.algorithms.comparison import iqm_coverage, iqm_interval
from ragen.errors import RagenError
from ragen.files import finite, read_yaml, value_at
from ragen.sweeps.run import STATUS_OF_STATE
from ragen.tracking.comparison import COLUMNS, Comparison, compare_all, how_compared, to_row
from ragen.tracking.conditions import (
    Condition,
    Curve,
    collapse_note,
    endings,
    interval_name,
    read_curve,
    share_levels,
)
from ragen.tracking.console import markdown_table
from ragen.tracking.outcomes import Outcome
from ragen.tracking.rundir import read_metrics, read_status
from ragen.tracking.validation import NO_VALIDATION, success_by_tag

MIN_IQM_SEEDS, MIN_IQM_TASKS = 5, 3
"""From so many on an interquartile mean over tasks and seeds is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRun:
    """A run of an arm, in the form that conditions are read from."""

    name: str
    value: str
    """The name of its arm."""
    seed: int
    """Its seed.train, by which runs are paired."""
    run_dir: Path
    val_seed: str
    """Its seed.val: which levels it was validated on."""


def read_arm(name: str, folders: Sequence[Path]) -> Condition:
    """The runs of an arm. One that has not ended does not count."""
    curves = [_read_run(name, folder) for folder in folders]
    runs = [curve.run for curve in curves]
    seeds = [run.seed for run in runs]
    if twice := next((seed for seed in seeds if seeds.count(seed) > 1), None):
        same = " and ".join(str(run.run_dir) for run in runs if run.seed == twice)
        raise RagenError(f"{name}: {same} have the same seed.train={twice}. An arm has one run of each seed.")
    val_seeds = [run.val_seed for run in runs if isinstance(run, ArmRun)]
    return Condition(value=name, curves=curves, share_levels=share_levels(val_seeds))


def _read_run(name: str, folder: Path) -> Curve:
    config_file = folder / "config.yaml"
    config = read_yaml(config_file)
    run = ArmRun(
        name=str(value_at(config, "trainer.experiment_name", config_file)),
        value=name,
        seed=int(value_at(config, "seed.train", config_file)),
        run_dir=folder,
        val_seed=str(value_at(config, "seed.val", config_file)),
    )
    status = read_status(folder)
    ended = STATUS_OF_STATE.get(status["state"], "missing")
    curve = read_curve(run, Outcome(status=ended, early_stop=status.get("early_stop"), cause=status.get("cause", "")))
    if not curve.steps:
        raise RagenError(f"{folder} {NO_VALIDATION}")
    return curve


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
    arms = [read_arm(name, runs) for name, runs in zip(names, folders, strict=True)]
    comparisons = compare_all(arms, arms[0])
    return (to_json if as_json else report)(arms, comparisons, smallest)
