"""The end of a sweep: figure, CSV files and a short report, all read from the run directories."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.errors import MissingExtra, install_command
from ragen.files import to_csv
from ragen.sweeps.figure import draw
from ragen.sweeps.run import Run
from ragen.tracking.conditions import Condition, endings, interval_name, read_conditions
from ragen.tracking.outcomes import TIMES, Outcome
from ragen.tracking.rundir import read_records, write_atomic


def check_extra() -> None:
    """Called before the first run: a sweep of days must not end without its figure."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra(f"The report of a sweep needs matplotlib. Run: {install_command('plot')}")


def write_report(
    stem: Path, *, title: str, axis_name: str, runs: Sequence[Run], outcomes: Mapping[str, Outcome], summary: Path
) -> list[Path]:
    """<stem>_report.md, .png and .csv, and <stem>_curves.csv with every validation; what was written."""
    conditions = read_conditions(runs, outcomes)
    files = {part: stem.with_name(f"{stem.name}_{part}") for part in ("report.md", "report.png", "report.csv")}
    curves_file = stem.with_name(f"{stem.name}_curves.csv")
    draw(conditions, title=title, axis_name=axis_name, out=files["report.png"])
    write_atomic(files["report.csv"], runs_csv(conditions))
    write_atomic(curves_file, curves_csv(conditions))
    text = report_text(conditions, title=title, axis_name=axis_name, figure=files["report.png"].name, summary=summary)
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


def report_text(conditions: Sequence[Condition], *, title: str, axis_name: str, figure: str, summary: Path) -> str:
    """What came out, as Markdown."""
    lines = [f"# {title}", "", f"![validation success]({figure})", ""]
    lines += [f"| {axis_name} | final success | best success | best at step | ended | training time |"]
    lines += ["|---|---|---|---|---|---|"]
    for condition in conditions:
        final = f"{condition.final}" if condition.final else "-"
        best = f"{condition.best}" if condition.best else "-"
        steps = ", ".join(str(curve.best_step) for curve in condition.counted) or "-"
        times = [curve.outcome.times["train_time"] for curve in condition.counted if curve.outcome.times]
        seconds = f"{fmean(times):.1f} s" if times else "-"
        lines.append(f"| {condition.value} | {final} | {best} | {steps} | {endings(condition)} | {seconds} |")
    lines += [
        "",
        f"Mean [{interval_name(conditions)}]. Final is the last validation of a run. Best is its highest one, chosen "
        "after the fact, so it flatters every value.",
    ]
    if any(condition.has_early_stop for condition in conditions):
        lines.append("A run that stopped early counts as a failed regime; its final success is that of its last step.")
    if any(len(condition.counted) == 1 for condition in conditions):
        lines.append("One seed says nothing about the spread between runs: `--seeds 3` repeats every value.")
    return "\n".join([*lines, "", f"Result lines: {summary}", ""])
