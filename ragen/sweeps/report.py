"""The end of a sweep: figure, CSV files and a short report, all read from the run directories."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.errors import MissingExtra, install_command
from ragen.files import to_csv
from ragen.studies.comparison import COLUMNS, compare_all, how_compared, to_row
from ragen.studies.conditions import Condition, collapse_note, endings, interval_name, read_conditions
from ragen.studies.outcomes import TIMES, Outcome
from ragen.sweeps.driving.run import Run
from ragen.sweeps.figure import draw
from ragen.tracking.console import markdown_table
from ragen.tracking.rundir import read_records, write_atomic


def check_extra() -> None:
    """Called before the first run: a sweep of days must not end without its figure."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(f"The report of a sweep needs matplotlib. Run: {install_command('plot')}")


def write_report(
    stem: Path,
    *,
    title: str,
    axis_name: str,
    runs: Sequence[Run],
    outcomes: Mapping[str, Outcome],
    summary: Path,
    baseline: str,
) -> list[Path]:
    """<stem>_report.md, .png and .csv, and <stem>_curves.csv with every validation; what was written."""
    conditions = read_conditions(runs, outcomes)
    files = {part: stem.with_name(f"{stem.name}_{part}") for part in ("report.md", "report.png", "report.csv")}
    curves_file = stem.with_name(f"{stem.name}_curves.csv")
    draw(conditions, title=title, axis_name=axis_name, out=files["report.png"])
    write_atomic(files["report.csv"], runs_csv(conditions))
    write_atomic(curves_file, curves_csv(conditions))
    lines = [f"# {title}", "", f"![validation success]({files['report.png'].name})", ""]
    lines += values_text(conditions, axis_name)
    lines += differences_text(conditions, axis_name, baseline)
    text = "\n".join([*lines, f"Result lines: {summary}", ""])
    write_atomic(files["report.md"], text)
    return [*files.values(), curves_file]


def runs_csv(conditions: Sequence[Condition]) -> str:
    """One row per run."""
    header = ["value", "seed", "name", "status", "early_stop", "cause", "last_step", "final_success", "best_success"]
    header += ["best_step", "val_episodes", *(f"{name}_s" for name in TIMES), "wall_time_s", "gpu", "run_dir"]
    rows: list[list[Any]] = []
    for curve in (curve for condition in conditions for curve in condition.curves):
        run, outcome, has_steps = curve.run, curve.outcome, bool(curve.steps)
        records = read_records(run.run_dir)
        rows.append(
            [
                *(run.value, run.seed, run.name, outcome.status, outcome.early_stop or "", outcome.cause),
                records[-1]["step"] if records else "",
                *((curve.final, curve.best, curve.best_step) if has_steps else ("", "", "")),
                curve.num_episodes or "",
                *(outcome.times.get(name, "") for name in TIMES),
                "" if outcome.wall_time is None else round(outcome.wall_time, 1),
                *(outcome.device, run.run_dir),
            ]
        )
    return to_csv(header, rows)


def curves_csv(conditions: Sequence[Condition]) -> str:
    """One row per validation."""
    rows = [
        [curve.run.value, curve.run.seed, step, success, curve.num_episodes]
        for condition in conditions
        for curve in condition.curves
        for step, success in zip(curve.steps, curve.successes, strict=True)
    ]
    return to_csv(["value", "seed", "step", "val_success", "val_episodes"], rows)


def values_text(conditions: Sequence[Condition], axis_name: str) -> list[str]:
    """What came out for each value, as Markdown."""
    columns = (axis_name, "final success", "best success", "best at step", "collapsed", "ended", "training time")
    notes = [
        f"Mean [{interval_name(conditions)}]. Final is the last validation of a run. Best is its highest one, chosen "
        "after the fact, so it flatters every value."
    ]
    if note := collapse_note(conditions):
        notes.append(f"A run that stopped early is a failed regime. Means are those of the other runs alone. {note}")
    if any(len(condition.counted) == 1 for condition in conditions):
        notes.append("One seed says nothing about the spread between runs: `--seeds 3` repeats every value.")
    return [markdown_table(columns, [value_row(condition) for condition in conditions]), "", *notes, ""]


def value_row(condition: Condition) -> list[str]:
    times = [curve.outcome.times["train_time"] for curve in condition.counted if curve.outcome.times]
    return [
        condition.value,
        f"{condition.final}" if condition.final else "-",
        f"{condition.best}" if condition.best else "-",
        ", ".join(str(curve.best_step) for curve in condition.survivors) or "-",
        f"{len(condition.collapsed)} of {len(condition.counted)}" if condition.counted else "-",
        endings(condition),
        f"{fmean(times):.1f} s" if times else "-",
    ]


def differences_text(conditions: Sequence[Condition], axis_name: str, baseline: str) -> list[str]:
    """Every value against the baseline; nothing where there is nothing to compare."""
    base = next((condition for condition in conditions if condition.value == baseline), conditions[0])
    comparisons = compare_all(conditions, base)
    if not comparisons:
        return []
    rows = [[comparison.value, *to_row(comparison)] for comparison in comparisons]
    table = markdown_table((axis_name, *COLUMNS), rows)
    return [f"Success less that of {axis_name} = {base.value}:", "", table, "", how_compared(comparisons), ""]
