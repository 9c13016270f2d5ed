"""Sweeps, studies and searches: their runs by value and seed, with intervals, and how each ended.

Runs are found by their names among those that are shown; their numbers are read from the run directories.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ragen.algorithms.statistics import Estimate
from ragen.files import finite, readable, stamp
from ragen.studies.comparison import paired_difference
from ragen.studies.conditions import (
    Condition,
    Curve,
    ListedRun,
    endings,
    interval_name,
    read_conditions,
    read_curve,
    share_levels,
)
from ragen.studies.outcomes import Outcome
from ragen.view.reading.folders import Entry, Folders, NotThere
from ragen.view.reading.series import METRICS
from ragen.view.reading.settings import at, read_settings
from ragen.view.reading.summary import FOREIGN, read_status, state_of
from ragen.view.reading.sweep_files import (
    COMMAND,
    RESULT,
    Sweep,
    changed_at,
    find_run,
    find_sweeps,
    read_outcome,
    read_report,
    read_table,
    record_of,
    runs_by_name,
    title_of,
    with_end,
)

OWN = ("seed", "score")
"""Fields of a result that name no value."""
NUMBERED = re.compile(r"(?P<value>.+)-(?P<seed>\d{1,9})")
"""How the study calls its runs: frozen_lake-think-rl-2."""
MOST_DIFFERENCES = 40
"""Values that are compared with each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed(ListedRun):
    """A run of a sweep, in the form that conditions are read from."""

    entry: Entry | None
    """None where its run directory is not among those that are shown."""
    outcome: Outcome
    params: Mapping[str, str]
    """The fields of its result that tell its value."""


def read_list(folders: Folders) -> list[dict[str, Any]]:
    """All sweeps in the form of the API, the newest first."""
    rows = []
    for sweep in find_sweeps(folders.roots).values():
        statuses = [read_outcome(stem).status for stem in sweep.stems]
        rows.append(
            {
                **named(sweep),
                "num_runs": len(statuses),
                "num_ended": sum(status != "missing" for status in statuses),
                "num_failed": statuses.count("fail"),
                "num_early_stopped": statuses.count("early_stopped"),
                "updated_at": updated_at(sweep),
            }
        )
    return sorted(rows, key=lambda row: -row["updated_at"])


def named(sweep: Sweep) -> dict[str, str]:
    return {"id": sweep.id, "name": title_of(sweep), "folder": str(sweep.path)}


def updated_at(sweep: Sweep) -> float:
    if sweep.table:
        return (stamp(sweep.table) or (0,))[0] / 1e9
    return max(map(changed_at, sweep.stems))


def read_sweep(folders: Folders, sweep_id: str) -> dict[str, Any]:
    """One sweep in the form of the API: a point per value."""
    sweep = find_sweeps(folders.roots).get(sweep_id)
    if sweep is None:
        raise NotThere("This sweep does not exist, or not any more.")
    if sweep.table:
        return read_scaling(sweep, folders.entries())
    runs = labelled(read_runs(sweep, folders.entries()))
    ended = [run for run in runs if run.outcome.status != "missing"]
    outcomes = {run.name: run.outcome for run in ended}
    conditions = [with_levels(each) for each in read_conditions(ended, outcomes, read=read_cached)]
    conditions.sort(key=lambda condition: sort_key(condition.value))
    compared = conditions[:MOST_DIFFERENCES]
    return {
        **named(sweep),
        "interval": interval_name(conditions),
        "points": [to_point(condition) for condition in conditions],
        "differences": [[_estimate(paired_difference(one, other)) for other in compared] for one in compared],
        "waiting": [to_waiting(run) for run in runs if run.outcome.status == "missing"],
        "report": read_report(sweep),
        "table": None,
    }


def read_scaling(sweep: Sweep, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """The table of `ragen scaling`, and which of its cells are names of runs that are shown."""
    assert sweep.table
    table = read_table(sweep.table)
    cells = {cell for row in table["rows"] for cell in row}
    runs = {name: found[0].id for name, found in runs_by_name(entries.values()).items() if name in cells}
    empty = {"interval": "", "points": [], "differences": [], "waiting": [], "report": ""}
    return named(sweep) | empty | {"table": table | {"runs": runs}}


def read_runs(sweep: Sweep, entries: Mapping[str, Entry]) -> list[Listed]:
    """Its runs, each with how it ended."""
    by_name = runs_by_name(entries.values())
    runs = []
    for stem in sweep.stems:
        record = record_of(with_end(stem, RESULT))
        name = str(record.get("name") or stem.name)
        outcome = read_outcome(stem)
        entry = find_run(by_name.get(name, []), with_end(stem, COMMAND))
        numbered = NUMBERED.fullmatch(name)
        params = {key: value for key, value in outcome.fields.items() if key not in OWN}
        seed = str(outcome.fields.get("seed") or (numbered["seed"] if numbered and not params else 1))
        runs.append(
            Listed(
                name=name,
                value=numbered["value"] if numbered and not params else name,
                seed=int(seed) if seed.isdecimal() else 1,
                run_dir=entry.path if entry else stem / "no run directory",
                entry=entry,
                outcome=outcome,
                params=params,
            )
        )
    return runs


def labelled(runs: Sequence[Listed]) -> list[Listed]:
    """With the fields that differ as their value: kl=0.01, or actor_lr=1e-6, beta=0."""
    keys = list(dict.fromkeys(key for run in runs for key in run.params))
    varied = [key for key in keys if len({run.params.get(key) for run in runs if run.params}) > 1] or keys[:1]
    return [
        replace(run, value=", ".join(f"{key}={run.params[key]}" for key in varied if key in run.params) or run.value)
        for run in runs
    ]


def read_cached(run: Listed, outcome: Outcome) -> Curve:
    """The validations of a run, read once per version of its metrics; none where they cannot be read."""
    curve = Curve(run=run, outcome=outcome, steps=[], estimates=[], num_episodes=0, num_levels=0)
    if run.entry is not None:
        curve = readable(lambda: _read_curve(run.run_dir, stamp(run.run_dir / METRICS)), curve, also=FOREIGN)
    return replace(curve, run=run, outcome=outcome)


@functools.lru_cache(maxsize=1000)
def _read_curve(run_dir: Path, version: Any) -> Curve:
    return read_curve(ListedRun(name="", run_dir=run_dir), Outcome(status="missing"))


def with_levels(condition: Condition) -> Condition:
    """Whether its seeds share their validation levels: by the seed of validation in their configurations."""
    seeds = [str(at(read_settings(curve.run.run_dir), "seed", "val")) for curve in condition.counted]
    return replace(condition, share_levels=share_levels(seeds))


def sort_key(value: str) -> list[tuple[int, float, str]]:
    """Numbers by their size: kl=0.001, kl=0.01, kl=1, and texts behind them."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", value)
    return [(0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts)]


# --- in the form of the API -----------------------------------------------------------------------------------------


def to_point(condition: Condition) -> dict[str, Any]:
    statuses = {curve.outcome.status for curve in condition.curves}
    return {
        "value": condition.value,
        "first": _estimate(condition.first),
        "final": _estimate(condition.final),
        "best": _estimate(condition.best),
        "num_counted": len(condition.counted),
        "collapse": _estimate(condition.collapse),
        "num_collapsed": len(condition.collapsed),
        "has_failed_runs": "fail" in statuses,
        "endings": endings(condition),
        "runs": [to_run(curve) for curve in sorted(condition.curves, key=lambda curve: curve.run.seed)],
    }


def to_run(curve: Curve) -> dict[str, Any]:
    run, outcome = curve.run, curve.outcome
    assert isinstance(run, Listed)
    last = curve.estimates[-1] if curve.steps else None
    return {
        "name": run.name,
        "run_id": run.entry.id if run.entry else None,
        "seed": run.seed,
        "status": outcome.status,
        "stop": outcome.stop,
        "score": outcome.fields.get("score"),
        "counts": curve.counts,
        "steps": curve.steps,
        "successes": curve.successes,
        "final": _estimate(last),
        "best": curve.best if curve.steps else None,
        "best_step": curve.best_step if curve.steps else None,
        "wall_time": outcome.wall_time,
        "device": outcome.device,
        "last_lines": list(outcome.last_lines),
    }


def to_waiting(run: Listed) -> dict[str, Any]:
    """A run that was started and has left no record: it is at work, or whoever drove it has ended."""
    state = state_of(read_status(run.entry.path), run.entry.path)[0] if run.entry else "unknown"
    return {"name": run.name, "run_id": run.entry.id if run.entry else None, "state": state}


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else finite(asdict(estimate))
