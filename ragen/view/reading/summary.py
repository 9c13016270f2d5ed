"""One run as a row of the list and as a card: how it stands, its validations, its speed.

Only what changed is read again: metrics from the last offset on, of those the lines of validations alone.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.algorithms.statistics import Estimate
from ragen.files import flatten, number, read_object, read_yaml, readable, stamp
from ragen.tracking import names
from ragen.tracking.advisories.health import Advisory, read_health
from ragen.tracking.advisories.rules import advise, with_episodes
from ragen.tracking.card_page import sections
from ragen.tracking.episodes import STEP_FILE, SUFFIXES
from ragen.tracking.lock import KILLED, is_killed
from ragen.tracking.run_card import read_card
from ragen.tracking.rundir import PREFLIGHT, SFT_RECORD
from ragen.tracking.validation import over_tags, read_references, success_by_tag
from ragen.view.reading.folders import Entry
from ragen.view.reading.series import METRICS, read_block, rows_of

FOREIGN = (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a file of something else may raise, beside the errors of our readers."""
ROLLOUTS = (names.VALIDATION, names.GREEDY_VALIDATION, "sampled", "greedy")
"""Where the success of a row is looked for, the first that there is: of a training, then of an evaluation."""
MARKS = {rollout: f'"{rollout}/'.encode() for rollout in ROLLOUTS}
SUCCESSES = "|".join((names.SUCCESS, *names.interval_ends(names.SUCCESS)))
SUCCESS_ITEM = re.compile(rf'"(?:{"|".join(ROLLOUTS)})/[^"]*/(?:{SUCCESSES})":[^,}}]+'.encode())
"""The name of a success, or of an end of its interval, with its number: one of thousands of a line."""
STEP_ITEM = re.compile(rb'"step":\s*\d+')
PACE_ITEM = re.compile(rf'"{names.seconds("step")}":[^,}}]+'.encode())
SECTION = re.compile(r"^(?=[^\s#-])", re.MULTILINE)
"""Where a key of the outermost level of a configuration begins."""
KEY = re.compile(r"^(?=  [^\s#-])", re.MULTILINE)
"""Where one of the next level begins, in the form that runs write."""
SECTIONS = {
    "model_path": (),
    "algorithm": ("adv_estimator",),
    "trainer": ("total_training_steps", "project_name"),
    "es_manager": ("train", "val"),
}
"""Those that the list needs, and which of their keys: reading all takes many times as long."""
ADVISING_S = 0.1
"""Seconds of a list that are spent on advisories."""
RECENT = 10
"""Steps over which the speed is taken."""
STEP_SECONDS = names.seconds("step")


@dataclass(kw_only=True, slots=True)
class Curve:
    """The success of one tag, or the mean of all, validation by validation."""

    steps: list[int] = field(default_factory=list)
    success: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)

    def add(self, step: int, found: Estimate) -> None:
        self.steps.append(step)
        self.success.append(number(found.mean))
        self.low.append(number(found.low))
        self.high.append(number(found.high))

    def to_json(self) -> dict[str, Any]:
        known = [(value, -step) for step, value in zip(self.steps, self.success) if value is not None]
        best, step = max(known, default=(None, 0))  # of equals the first
        return asdict(self) | {"best": best, "best_step": -step if known else None}


@dataclass(slots=True)
class Digest:
    """What the list needs of metrics.jsonl, kept up to date."""

    path: Path
    levels: Mapping[str, int]
    """Tag -> number of validation levels, for the intervals of older runs."""
    offset: int = 0
    version: str = ""
    curves: dict[str, Curve] = field(default_factory=dict)
    mean: Curve = field(default_factory=Curve)
    """Over the tags."""
    rollout: str = ""
    """Whose success it is: of ROLLOUTS."""
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The last lines."""
    step: int | None = None
    """The last one."""
    pace: float | None = None
    """Seconds per step of the recent ones."""

    def update(self) -> None:
        more = True
        while more:
            found = read_block(self.path, self.offset, self.version)
            if found.is_reset or not found.version:
                self.curves, self.mean, self.rollout = {}, Curve(), ""
                self.recent.clear()
            self.offset, self.version, more = found.offset, found.version, found.has_more
            self._extend(found.content)
            self.recent.extend(items_in(line, PACE_ITEM) for line in last_lines(found.content, RECENT))
        rows = list(rows_of(list(self.recent)))
        seconds = [value for row in rows if (value := number(row.get(STEP_SECONDS)))]
        self.step, self.pace = rows[-1]["step"] if rows else None, fmean(seconds) if seconds else None

    def _extend(self, content: bytes) -> None:
        """Add the successes of some lines: of the rollout that is known, or of the first that has any."""
        for rollout in [self.rollout] if self.rollout else ROLLOUTS:
            for row in rows_of([items_in(line, SUCCESS_ITEM) for line in lines_with(content, MARKS[rollout])]):
                self._add(row, rollout)
            if self.rollout:
                return

    def _add(self, row: Mapping[str, Any], rollout: str) -> None:
        successes = readable(lambda: success_by_tag(row, self.levels, rollout=rollout), {}, also=FOREIGN)
        for tag, found in successes.items():
            self.rollout = rollout
            self.curves.setdefault(tag, Curve()).add(row["step"], found.success)
        if successes and (mean := readable(lambda: over_tags(successes), None, also=FOREIGN)):
            self.mean.add(row["step"], mean)


def lines_with(content: bytes, mark: bytes) -> Iterator[bytes]:
    """The lines in which a mark stands, without a look at the others: (b"a1\\nb\\na2\\n", b"a") -> b"a1", b"a2" """
    at = content.find(mark)
    while at >= 0:
        end = content.index(b"\n", at)
        yield content[content.rfind(b"\n", 0, at) + 1 : end]
        at = content.find(mark, end)


def last_lines(content: bytes, count: int) -> list[bytes]:
    """(b"a\\nb\\nc\\n", 2) -> [b"b", b"c"]"""
    start = len(content)
    for _ in range(count + 1):
        start = content.rfind(b"\n", 0, max(0, start))
    return content[start + 1 :].splitlines()


def items_in(line: bytes, item: re.Pattern[bytes]) -> bytes:
    """The step of a line and the items of a kind, which is faster than reading all of it; no row without a step.

    b'{"step":3,"a":1.0,"val-env/A/success":0.5}' -> b'{"step":3,"val-env/A/success":0.5}'
    """
    step = STEP_ITEM.search(line)
    return b"{%b}" % b",".join([step[0], *item.findall(line)]) if step else b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the list needs of config.yaml, which does not change while a run is at work."""

    model: str = ""
    estimator: str = ""
    total_steps: int | None = None
    tags: tuple[str, ...] = ()
    levels: Mapping[str, int] = field(default_factory=dict)
    project: str = ""


def read_facts(run: Path) -> Facts:
    """Empty where there is no configuration, or one that cannot be read."""
    flat = readable(lambda: flatten(read_yaml(run / "config.yaml", sections_of)), {})
    tags = {name: _texts(flat.get(f"es_manager.{name}.env_configs.tags")) for name in ("train", "val")}
    groups = flat.get("es_manager.val.env_configs.n_groups")
    counts = [count for count in groups if isinstance(count, int)] if isinstance(groups, list) else []
    total = flat.get("trainer.total_training_steps")
    return Facts(
        model=str(flat.get("model_path") or ""),
        estimator=str(flat.get("algorithm.adv_estimator") or ""),
        total_steps=total if isinstance(total, int) else None,
        tags=tuple(dict.fromkeys([*tags["val"], *tags["train"]])),
        levels=dict(zip(tags["val"], counts)),
        project=str(flat.get("trainer.project_name") or ""),
    )


def sections_of(config: str) -> str:
    """What the list needs of a configuration.

    The sections model_path, data and trainer (project_name, logger) -> model_path and trainer (project_name)
    """
    found = ((name, part) for part in SECTION.split(config) for name in SECTIONS if part.startswith(f"{name}:"))
    return "".join(_keys_of(part, SECTIONS[name]) for name, part in found) or "{}"


def _keys_of(section: str, wanted: Sequence[str]) -> str:
    """A section with some of its keys; all of it where it stands on one line."""
    head, *keys = KEY.split(section)
    if head.count("\n") > 1 or not keys:
        return section
    return head + "".join(key for key in keys if key.startswith(tuple(f"  {name}:" for name in wanted)))


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []


def read_status(run: Path) -> dict[str, Any]:
    """status.json; empty where there is none, or none that can be read."""
    return readable(lambda: read_object(run / "status.json"), {})


STATES = ("running", "finished", "early_stopped", "interrupted", "failed")


def state_of(status: Mapping[str, Any], run: Path) -> tuple[str, str]:
    """State and reason. A run that says `running` and whose lock is free was killed."""
    state, reason = status.get("state"), str(status.get("reason") or "")
    if state not in STATES:
        return "unknown", reason or "it has no status.json that can be read"
    if is_killed(run, state):
        return "killed", KILLED
    return state, reason


def kind_of(run: Path, rollout: str) -> str:
    """What wrote the folder: an evaluation has no steps, neither in its metrics nor in its files."""
    if (run / SFT_RECORD).exists():
        return "sft"
    if rollout in (names.VALIDATION, names.GREEDY_VALIDATION):
        return "training"
    files = [path.name for end in SUFFIXES for path in (run / "episodes").glob(f"*{end}")]
    is_evaluation = rollout or (files and not any(STEP_FILE.match(name) for name in files))
    return "evaluation" if is_evaluation else "training"


@dataclass(slots=True)
class _Known:
    """What was read of a run, and what its files looked like then."""

    config_stamp: Any
    facts: Facts
    digest: Digest
    status_stamp: Any = None
    status: dict[str, Any] = field(default_factory=dict)
    metrics_stamp: Any = None
    kind: str = ""
    advisories: list[dict[str, Any]] | None = None
    """None until they were asked for; those of an earlier step until they are asked for again."""
    advised_of: Any = None
    """Which files they are of, and when they were made."""
    shown: list[dict[str, Any]] | None = None
    """The same with the episodes to look at, which only the page of the run asks for."""


class Summaries:
    """The rows of the list; what has not changed is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def rows(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """All runs. Advisories need every number of a run: those that are not ready in time come with the next list."""
        until = time.monotonic() + ADVISING_S
        found = [self.row(entry, is_advised=time.monotonic() < until) for entry in entries]
        with self._lock:
            for gone in self._known.keys() - {row["id"] for row in found}:
                del self._known[gone]
        return found

    def row(self, entry: Entry, *, is_advised: bool = True) -> dict[str, Any]:
        """One run in the form of the API."""
        with self._lock:
            known = self._refresh(entry)
            if is_advised:
                _advise(entry.path, known)
            return _to_json(entry, known)

    def advisories(self, entry: Entry) -> list[dict[str, Any]]:
        """Those of one run with the episodes to look at: a rollout is read for them once per step."""
        with self._lock:
            known = self._refresh(entry)
            _advise(entry.path, known)
            if known.shown is None:
                known.shown = read_advisories(entry.path, has_episodes=True)
            return known.shown if known.advisories else []

    def _refresh(self, entry: Entry) -> _Known:
        config_stamp = stamp(entry.path / "config.yaml")
        known = self._known.get(entry.id)
        if known is None or known.config_stamp != config_stamp:
            facts = read_facts(entry.path)
            known = _Known(config_stamp, facts, Digest(entry.path / METRICS, facts.levels))
            self._known[entry.id] = known
        status_stamp, metrics_stamp = stamp(entry.path / "status.json"), stamp(entry.path / METRICS)
        if status_stamp is None or known.status_stamp != status_stamp:
            known.status, known.status_stamp = read_status(entry.path), status_stamp
            known.kind = ""
        if known.metrics_stamp != metrics_stamp:
            known.digest.update()
            known.metrics_stamp = metrics_stamp
            known.kind = ""
        known.kind = known.kind or kind_of(entry.path, known.digest.rollout)
        return known


def _advise(run: Path, known: _Known) -> None:
    """What the rules say, unless that is known already. Time alone stalls a run: it is asked again every minute."""
    minute = int(time.time() // 60) if known.status.get("state") == "running" else 0
    version = (known.metrics_stamp, known.status_stamp, minute)
    if known.kind == "training" and known.metrics_stamp and known.advised_of != version:
        known.advised_of = version
        known.advisories, known.shown = read_advisories(run), None


def read_advisories(run: Path, *, has_episodes: bool = False) -> list[dict[str, Any]]:
    """The advisories of a run; none where its files cannot be read."""

    def read() -> list[Advisory]:
        found = advise(read_health(run))
        return with_episodes(found, run) if has_episodes else found

    found = readable(read, [], also=FOREIGN)
    return [{**asdict(each), "title": each.rule.replace("_", " ")} for each in found]


def _to_json(entry: Entry, known: _Known) -> dict[str, Any]:
    facts, status, pace = known.facts, known.status, known.digest.pace
    state, reason = state_of(status, entry.path)
    step = status.get("step") if known.digest.step is None else known.digest.step
    total = facts.total_steps if known.kind == "training" else None
    left = total - step if state == "running" and total is not None and isinstance(step, int) else None
    return {
        "id": entry.id,
        "name": entry.path.name,
        "folder": str(entry.path),
        "kind": known.kind,
        "state": state,
        "reason": reason,
        "early_stop": status.get("early_stop"),
        "cause": status.get("cause"),
        "step": step,
        "total_steps": total,
        "started_at": status.get("started_at"),
        "updated_at": _updated_at(status, known.metrics_stamp),
        "tags": list(facts.tags),
        "project": facts.project,
        "model": facts.model,
        "estimator": facts.estimator,
        "validation": {tag: curve.to_json() for tag, curve in known.digest.curves.items()},
        "mean_validation": known.digest.mean.to_json() if known.digest.mean.steps else None,
        "seconds_per_step": pace,
        "seconds_left": None if left is None or pace is None else left * pace,
        "metrics": known.digest.offset,
        "advisories": known.advisories or [],
        "is_advised": known.advisories is not None,
    }


def _updated_at(status: Mapping[str, Any], metrics_stamp: tuple[int, int, int] | None) -> str | None:
    """The last sign of life: status.json is written at the start and at the end, metrics at every step."""
    logged = datetime.fromtimestamp(metrics_stamp[0] / 1e9, UTC).isoformat(timespec="seconds") if metrics_stamp else ""
    written = status.get("updated_at")
    return max(logged, written if isinstance(written, str) else "") or None


# --- one run ---------------------------------------------------------------------------------------------------------


def card(run: Path) -> dict[str, Any]:
    """What the page of a run shows beside its row."""
    return {
        "config": readable(lambda: flatten(read_yaml(run / "config.yaml")), {}),
        "status": read_status(run),
        "preflight": readable(lambda: read_object(run / PREFLIGHT), None),
        "run_card": readable(lambda: [asdict(each) for each in sections(read_card(run))], [], also=FOREIGN),
        "references": readable(lambda: read_references(run), {}),
        "checkpoints": sorted((path.name for path in run.glob("global_step_*") if path.is_dir()), key=_step),
        "tables": sorted(path.stem for path in run.glob("tables/*.json")),
    }


def _step(name: str) -> tuple[int, str]:
    number = name.rpartition("_")[2]
    return (int(number) if number.isdecimal() else -1, name)
