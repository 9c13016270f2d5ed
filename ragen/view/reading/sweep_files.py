"""Which sweeps, studies, searches and tables of scaling lie below the folders, and what their records say.

Whoever drives a list of runs leaves `<name>.command` and, at the end of a run, `<name>.result.json` beside its log.
`ragen scaling` leaves `scaling.md`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

from ragen.files import number, read_object, read_text, readable, stamp
from ragen.studies.outcomes import Outcome
from ragen.view.reading.folders import MARKS, Entry, id_of, may_hold_runs

RESULT, COMMAND = ".result.json", ".command"
SCALING = "scaling.md"
FOLDER_KEY = "trainer.default_local_dir="
LONGEST_REPORT = 2**16
CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A list of runs: the folder with their records."""

    id: str
    path: Path
    stems: tuple[Path, ...] = ()
    """Of each run the record without its end: logs/sweep/0/name."""
    table: Path | None = None
    """scaling.md"""


def find_sweeps(roots: Sequence[Path]) -> dict[str, Sweep]:
    """Id -> sweep: lists of two or more runs, and tables of scaling."""
    found: dict[str, tuple[str, set[Path]]] = {}
    tables: dict[str, Sweep] = {}
    seen: set[str] = set()
    for index, root in enumerate(roots):
        for folder, stems, has_table in _records_below(root):
            if (real := os.path.realpath(folder)) in seen:
                continue
            seen.add(real)
            top = sweep_folder(folder, root)
            found.setdefault(id_of(index, root, top), (top, set()))[1].update(Path(folder, stem) for stem in stems)
            if has_table:
                sweep_id = id_of(index, root, str(Path(folder, SCALING)))
                tables[sweep_id] = Sweep(id=sweep_id, path=Path(folder), table=Path(folder, SCALING))
    lists = {
        sweep_id: Sweep(id=sweep_id, path=Path(top), stems=tuple(sorted(stems)))
        for sweep_id, (top, stems) in found.items()
        if len(stems) > 1
    }
    return lists | tables


def _records_below(root: Path) -> Iterator[tuple[str, set[str], bool]]:
    """Folders with records, the records without their ends, and whether there is a table; run directories hold none."""
    for folder, subfolders, files in os.walk(root):
        is_run = not MARKS.isdisjoint(files)
        subfolders[:] = [] if is_run else sorted(name for name in subfolders if may_hold_runs(name))
        ends = ((name, end) for name in files for end in (RESULT, COMMAND) if name.endswith(end))
        stems, has_table = {name.removesuffix(end) for name, end in ends}, SCALING in files
        if stems or has_table:
            yield folder, stems, has_table


def sweep_folder(folder: str, root: Path) -> str:
    """The outermost folder with a summary log beside it (logs/kl and logs/kl.log), else the folder itself."""
    top, current = folder, Path(folder)
    while True:
        if current.name and current.with_name(f"{current.name}.log").is_file():  # `.` has no name
            top = str(current)
        if current == root or current == current.parent:
            return top
        current = current.parent


def title_of(sweep: Sweep) -> str:
    """The name of its folder; a study that is itself what was asked for has one, too."""
    return sweep.path.name or sweep.path.resolve().name


def changed_at(stem: Path) -> float:
    """When a run of the list was started or ended, in seconds since 1970."""
    stamps = (stamp(with_end(stem, end)) for end in (RESULT, COMMAND))
    return max((found[0] / 1e9 for found in stamps if found), default=0.0)


def runs_by_name(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Name of a run of a list -> run directories that may be its: the folder of that name, or `run` below it."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        name = entry.path.parent.name if entry.path.name == "run" else entry.path.name
        found.setdefault(name, []).append(entry)
    return found


def find_run(candidates: Sequence[Entry], command: Path) -> Entry | None:
    """Of several runs of one name the one whose folder the command names; None without any."""
    if len(candidates) > 1:
        end = folder_in(command)
        candidates = [entry for entry in candidates if end and entry.path.parts[-len(end) :] == end] or candidates
    return candidates[0] if candidates else None


def folder_in(command: Path) -> tuple[str, ...]:
    """The run directory that a command names, in its parts."""

    def split() -> list[str]:
        return [word for part in shlex.split(read_text(command)) for word in shlex.split(part)]

    words = readable(split, [], also=(ValueError,))
    folders = [word.removeprefix(FOLDER_KEY).strip("'") for word in words if word.startswith(FOLDER_KEY)]
    return Path(folders[-1]).parts if folders else ()


def read_outcome(stem: Path) -> Outcome:
    """The record of a run; a run without one has not ended."""
    record = record_of(with_end(stem, RESULT))
    status = record.get("status")
    if status not in ("success", "early_stopped", "fail"):
        return Outcome(status="missing")
    times, lines = record.get("times"), record.get("last_lines")
    wall_time, fields = number(record.get("wall_time")), record.get("fields")
    return Outcome(
        status=status,
        fields={str(key): str(value) for key, value in fields.items()} if isinstance(fields, dict) else {},
        early_stop=str(record["early_stop"]) if record.get("early_stop") else None,
        cause=str(record.get("cause") or ""),
        times={key: value for key, value in times.items() if number(value)} if isinstance(times, dict) else {},
        wall_time=wall_time,
        device=str(record.get("device") or ""),
        last_lines=tuple(map(str, lines)) if isinstance(lines, list) else (),
    )


def read_report(sweep: Sweep) -> str:
    """The report that the sweep or study has written at its end, as text."""
    files = (sweep.path.with_name(f"{title_of(sweep)}_report.md"), sweep.path / "report.md")
    texts = (readable(partial(read_text, file), "")[:LONGEST_REPORT] for file in files)
    return next(filter(None, texts), "")


def read_table(path: Path) -> dict[str, Any]:
    """The first table of a Markdown file, cell by cell: {"columns": ["model", ...], "rows": [["tiny", ...], ...]}"""
    lines = dropwhile(lambda line: not line.startswith("|"), read_text(path)[:LONGEST_REPORT].splitlines())
    lines = [line.strip() for line in takewhile(lambda line: line.startswith("|"), lines)]
    cells = [[cell.strip().replace("\\|", "|") for cell in CELLS.split(line)[1:-1]] for line in lines]
    return {"columns": cells[0] if cells else [], "rows": cells[2:]}


def with_end(stem: Path, end: str) -> Path:
    """The file of a run of the list."""
    return stem.with_name(stem.name + end)


def record_of(path: Path) -> dict[str, Any]:
    """The record of a run that has ended; empty where there is none that can be read."""
    return readable(lambda: read_object(path), {})
