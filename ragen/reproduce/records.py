"""What came out: a small JSON file for each claim and budget, with command, seeds, machine and version."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import ragen
from ragen.algorithms.statistics import Estimate
from ragen.errors import RagenError
from ragen.files import read_object, value_at
from ragen.reproduce.claim import Arm, Budget, Claim, Evidence, Finding, Point
from ragen.reproduce.plan import key_of
from ragen.studies.comparison import MEASURES
from ragen.studies.conditions import Condition
from ragen.tracking.run_card import read_card
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
    """Arm -> the name of its runs, and of each seed seconds and success: final, best, mean over training."""


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
        machine=machines(evidence),
        version=versions(evidence),
        day=date.today().isoformat(),
        arms={name: {"runs": key_of(arms[name]), **numbers(arm)} for name, arm in evidence.arms.items()},
    )


def numbers(arm: Condition) -> dict[str, Sequence[float]]:
    """Seconds of every run, and the successes of those that validated, in order."""
    found = {name: [round(getattr(curve, name), DIGITS) for curve in arm.counted] for name in MEASURES if arm.counted}
    return {"seconds": [round(curve.outcome.wall_time or 0.0) for curve in arm.curves], **found}


def machines(evidence: Evidence) -> str:
    """What the runs say they ran on: 2 cores, AMD EPYC; several are told apart."""
    facts = [card["machine"] for card in _cards(evidence)]
    names = [", ".join([f"{each['usable_cores']} cores", each["processor"], *each["gpus"]]) for each in facts]
    return " and ".join(dict.fromkeys(names)) or "no run"


def versions(evidence: Evidence) -> str:
    """The version of the runs, and the commit where they ran in a checkout: 0.1.0 (1f0c9a3e)"""
    found = [(card["versions"]["ragen"], card["versions"]["commit"]) for card in _cards(evidence)]
    names = [f"{version} ({commit[:8]})" if commit else version for version, commit in found]
    return " and ".join(dict.fromkeys(names)) or ragen.__version__


def _cards(evidence: Evidence) -> list[dict[str, Any]]:
    return [read_card(folder) for arm in evidence.arms for folder in evidence.folders(arm)]


# --- as JSON


def write_record(folder: Path, record: Record) -> Path:
    path = record_path(folder, record.claim, record.budget)
    content = asdict(record)
    content |= content.pop("finding")
    content["points"] = [each | {"ours": _to_json(*each["ours"].values())} for each in content["points"]]
    write_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def read_record(path: Path) -> Record:
    """The inverse; what is no record is an error that names the file."""
    content = read_object(path)
    names = ("claim", "budget", "num_seeds", "command", "machine", "version", "day", "arms")
    plain = {name: value_at(content, name, path) for name in names}
    try:
        points = tuple(
            Point(label=each["label"], ours=Estimate(*map(_from_json, each["ours"])), published=each["published"])
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


def _to_json(*ends: float) -> list[float | None]:
    """JSON has no NaN."""
    return [None if math.isnan(end) else round(end, DIGITS) for end in ends]


def _from_json(end: float | None) -> float:
    return math.nan if end is None else float(end)
