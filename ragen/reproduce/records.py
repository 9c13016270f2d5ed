"""What came out: a small JSON file for each claim and budget, with command, seeds, machine and version."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import ragen
from ragen.algorithms.statistics import Estimate
from ragen.errors import RagenError
from ragen.files import read_object, value_at
from ragen.reproduce.claim import Arm, Budget, Claim, Evidence, Finding, Point
from ragen.reproduce.plan import key_of
from ragen.tracking.conditions import Condition
from ragen.tracking.machine import commit_of, processor_name, query_gpus, usable_cores
from ragen.tracking.rundir import write_atomic

DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A finding with its circumstances."""

    claim: str
    budget: Budget
    finding: Finding
    num_seeds: int
    command: str
    machine: str
    version: str
    day: str
    """When it was judged."""
    arms: Mapping[str, Any]
    """Arm -> the name of its runs, and success of each seed: final, best, mean over training, collapsed."""


def record_path(folder: Path, claim: str, budget: Budget) -> Path:
    """C5 at minutes -> C05.minutes.json, so that files are in the order of the claims."""
    return folder / f"C{int(claim[1:]):02d}.{budget}.json"


def make_record(
    claim: Claim, budget: Budget, evidence: Evidence, finding: Finding, *, arms: Mapping[str, Arm], command: str
) -> Record:
    return Record(
        claim=claim.name,
        budget=budget,
        finding=finding,
        num_seeds=max((len(condition.curves) for condition in evidence.arms.values()), default=0),
        command=command,
        machine=machine_name(),
        version=version_name(),
        day=date.today().isoformat(),
        arms={name: {"runs": key_of(arms[name]), **numbers(arm)} for name, arm in evidence.arms.items()},
    )


def numbers(arm: Condition) -> dict[str, list[float]]:
    """Of every seed that validated, in order."""
    counted = arm.counted
    if not counted:
        return {}
    return {
        "final": [round(curve.final, DIGITS) for curve in counted],
        "best": [round(curve.best, DIGITS) for curve in counted],
        "area": [round(curve.area, DIGITS) for curve in counted],
        "collapsed": [float(curve.is_collapsed) for curve in counted],
    }


def machine_name() -> str:
    """2 cores, AMD EPYC; NVIDIA H200"""
    gpus = [row[0] for row in query_gpus("name")]
    return "; ".join([f"{usable_cores()} cores, {processor_name()}", *gpus])


def version_name() -> str:
    """0.1.0; of a checkout with the commit: 0.1.0 (1f0c9a3e)"""
    commit = commit_of(Path(ragen.__file__).parents[1])
    return f"{ragen.__version__} ({commit[:8]})" if commit else ragen.__version__


# --- as JSON


def write_record(folder: Path, record: Record) -> Path:
    path = record_path(folder, record.claim, record.budget)
    finding = record.finding
    content = {
        "claim": record.claim,
        "budget": record.budget,
        "verdict": finding.verdict,
        "ours": finding.ours,
        "seeds_needed": finding.seeds_needed,
        "points": [
            {"label": point.label, "ours": _to_json(point.ours), "published": point.published}
            for point in finding.points
        ],
        "num_seeds": record.num_seeds,
        "command": record.command,
        "machine": record.machine,
        "version": record.version,
        "day": record.day,
        "arms": record.arms,
    }
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def read_record(path: Path) -> Record:
    """The inverse; what is no record is an error that names the file."""
    content = read_object(path)
    names = ("claim", "budget", "num_seeds", "command", "machine", "version", "day", "arms")
    plain = {name: value_at(content, name, path) for name in names}
    try:
        points = tuple(
            Point(label=each["label"], ours=_from_json(each["ours"]), published=each["published"])
            for each in value_at(content, "points", path)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RagenError(f"{path}: a point has no {error}. Remove the file and give its command again.") from error
    finding = Finding(
        verdict=value_at(content, "verdict", path),
        ours=value_at(content, "ours", path),
        seeds_needed=content.get("seeds_needed"),
        points=points,
    )
    return Record(finding=finding, **plain)


def read_records(folder: Path) -> dict[tuple[str, Budget], Record]:
    """(claim, budget) -> its record, of all there are."""
    records = [read_record(path) for path in sorted(folder.glob("C*.json"))]
    return {(record.claim, record.budget): record for record in records}


def _to_json(estimate: Estimate) -> list[float | None]:
    """JSON has no NaN."""
    ends = (estimate.mean, estimate.low, estimate.high)
    return [None if math.isnan(end) else round(end, DIGITS) for end in ends]


def _from_json(ends: list[float | None]) -> Estimate:
    mean, low, high = (math.nan if end is None else float(end) for end in ends)
    return Estimate(mean, low, high)
