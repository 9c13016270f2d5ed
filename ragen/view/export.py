"""`ragen view DIR --export report.html`: runs as one file that opens from disk, without a server and without a network.

The file holds the page itself (bundle.py) and what it would ask a server for: of every run its row, configuration,
metrics, filters and gradients, and some of its episodes. report.js answers the page from these.
"""

from __future__ import annotations

import webbrowser
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError, RagenError
from ragen.tracking.console import console, counted
from ragen.tracking.glossary import sentences_of
from ragen.tracking.rundir import write_atomic
from ragen.view.bundle import bundle, pack
from ragen.view.reading.encoding import to_json
from ragen.view.reading.episodes import SELECT, read_episode, to_header
from ragen.view.reading.filters import replay, training_files
from ragen.view.reading.folders import MARKS, Entry, Folders, existing
from ragen.view.reading.gradients import read_gradients
from ragen.view.reading.index import Index
from ragen.view.reading.series import read_series
from ragen.view.reading.summary import Summaries, card, read_advisories
from ragen.view.reading.sweeps import read_list, read_sweep

EPISODES = 20
"""Of each run, unless another number is asked for."""
MOST_RUNS = 100
"""Of these, the ones that were updated last; a file of more is too large to open."""
DIGITS = 6
"""Of each number: half the size, and no chart shows more."""
OF_FILE = f'{SELECT} where file = ? order by episodes."index"'
Header = dict[str, Any]


@dataclass(slots=True)
class Report:
    """What the file will hold."""

    blocks: dict[str, str] = field(default_factory=dict)
    """Id of a data block -> its packed content."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the list."""
    names: set[str] = field(default_factory=set)
    """Of all metrics."""
    num_episodes: int = 0
    num_episodes_there: int = 0
    """In the run directories."""
    left_out: list[str] = field(default_factory=list)
    """Sentences."""


def export(folders: Sequence[Path], out: Path, *, num_episodes: int = EPISODES, opens_browser: bool = False) -> None:
    """Write the report and say how large it is and what was left out."""
    roots = existing(folders)
    check_target(out)
    report = gather(roots, num_episodes)
    html = bundle({"report": pack(to_json(summary_of(report, roots))), **report.blocks}).encode()
    write_atomic(out, html)
    console.print(
        f"{out}: {size_name(len(html))}, {counted(len(report.runs), 'run')}, {report.num_episodes:,} of "
        f"{report.num_episodes_there:,} episodes. It opens from disk in any browser.",
        soft_wrap=True,
        highlight=False,
    )
    for sentence in report.left_out:
        console.print(f"Left out: {sentence}", soft_wrap=True, highlight=False)
    if opens_browser:
        webbrowser.open(out.resolve().as_uri())


def check_target(out: Path) -> None:
    """Runs are read and never written to; said before anything is read."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--export {out}: a report is a file that ends in .html.")
    if out.is_dir():
        raise ConfigError(f"--export {out} is a folder. Give a file: --export {out / 'report.html'}")
    for folder in out.resolve().parents:
        if any((folder / mark).exists() for mark in MARKS):
            raise ConfigError(f"--export {out}: {folder} is a run, into which nothing is written. Give another folder.")


def gather(roots: Sequence[Path], num_episodes: int) -> Report:
    """All runs below the roots, the newest of them where there are too many."""
    report, summaries = Report(), Summaries()
    rows = [(entry, summaries.row(entry)) for entry in Folders(roots).entries(is_fresh=True).values()]
    if not rows:
        raise ConfigError(f"There is no run below {', '.join(map(str, roots))}, so there is nothing to export.")
    rows.sort(key=lambda pair: pair[1]["updated_at"] or "", reverse=True)
    if len(rows) > MOST_RUNS:
        report.left_out.append(f"the {len(rows) - MOST_RUNS} runs that were updated first, of {len(rows)}.")
    for number, (entry, row) in enumerate(rows[:MOST_RUNS]):
        add_run(report, number, entry, row, num_episodes)
    if report.num_episodes < report.num_episodes_there:
        report.left_out.append(
            f"{report.num_episodes_there - report.num_episodes:,} of {report.num_episodes_there:,} episodes; those "
            "that advisories point at, and solved and failed ones of the first and the last rollouts, are there, "
            f"{num_episodes} of each run at most (--episodes)."
        )
    return report


def add_run(report: Report, number: int, entry: Entry, row: dict[str, Any], num_episodes: int) -> None:
    index, series = Index(entry.path), whole_series(entry.path)
    advisories = read_advisories(entry.path, has_episodes=True) if row["advisories"] else []
    looked_at = [exhibit for advisory in advisories for exhibit in advisory["episodes"]]
    episodes = read_some(index, num_episodes, [(each["file"], each["index"]) for each in looked_at])
    report.names.update(series["columns"])
    report.num_episodes += len(episodes["held"])
    report.num_episodes_there += episodes["num_there"]
    report.runs.append(row | {"block": (block := f"run-{number}")})
    content = {
        "run": row | card(entry.path) | {"advisories": advisories},
        "series": series,
        "episodes": episodes,
        "filters": read_filters(index),
        "gradients": read_gradients(entry.path),
    }
    report.blocks[block] = pack(to_json(content))


def summary_of(report: Report, roots: Sequence[Path]) -> dict[str, Any]:
    """What all pages of the report share."""
    folders = Folders(roots)
    sweeps = read_list(folders)
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "left_out": report.left_out,
        "roots": [str(root) for root in roots],
        "runs": report.runs,
        "sweeps": sweeps,
        "sweep_answers": [read_sweep(folders, sweep["id"]) for sweep in sweeps],
        "glossary": sentences_of(sorted(report.names)),
    }


# --- one run ---------------------------------------------------------------------------------------------------------


def whole_series(run: Path) -> dict[str, Any]:
    """All metrics, in the form of the API."""
    answer = read_series(run)
    while answer["more"]:
        more = read_series(run, answer["offset"], answer["version"])
        before, added = len(answer["steps"]), len(more["steps"])
        for name in answer["columns"].keys() | more["columns"].keys():
            first = answer["columns"].get(name, [None] * before)
            more["columns"][name] = first + more["columns"].get(name, [None] * added)
        answer = more | {"steps": answer["steps"] + more["steps"], "reset": False}
    answer["columns"] = {name: list(map(rounded, values)) for name, values in answer["columns"].items()}
    return answer


def rounded(value: float | None) -> float | None:
    """1.23456789 -> 1.23457; whole numbers stay whole."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def read_some(index: Index, number: int, looked_at: Sequence[tuple[str, int]] = ()) -> dict[str, Any]:
    """Some episodes, and the headers of all others of their files: groups are shown with what every member earned.

    Those that advisories point at (file, index) come first, as far as the number reaches.
    """
    while (progress := index.update())["done"] < progress["of"]:
        pass
    files = index.select("select name, step, rollout, count from files order by rollout, step, name")
    ends, named = first_and_last(files), {file for file, _ in looked_at}
    shown = [file for file in files if file in ends or file["name"] in named]
    headers = [to_header(row) for file in shown for row in index.select(OF_FILE, [file["name"]])]
    held = []
    for header in choose(headers, number, looked_at):
        with suppress(RagenError):  # a damaged line; the others are there
            held.append(read_episode(index, header["file"], header["index"], has_prompts=True))
    return {
        "files": shown,
        "tags": sorted({header["tag"] for header in headers if header["tag"]}),
        "headers": headers,
        "held": held,
        "num_there": sum(file["count"] for file in files),
    }


def first_and_last(files: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first and the last file of training, and those of validation; of an evaluation every policy's."""
    by_rollout: dict[str, list[Mapping[str, Any]]] = {}
    for file in files:
        if file["count"]:
            by_rollout.setdefault(file["rollout"], []).append(file)
    return [file for found in by_rollout.values() for file in (found[:1] + found[1:][-1:])]


def choose(headers: Iterable[Header], number: int, looked_at: Sequence[tuple[str, int]] = ()) -> list[Header]:
    """Those that are looked at, then solved and failed ones of every file in turn, until there are enough.

    files A, B with solved s and failed f: A s f f f, B s s f; 4 of them -> A s, A f, B s, B f
    """
    queues: dict[tuple[str, bool], deque[Header]] = {}
    chosen: list[Header] = []
    counts: Counter[tuple[str, bool]] = Counter()
    for header in sorted(headers, key=lambda header: not header["success"]):
        kind = header["file"], bool(header["success"])
        if (header["file"], header["index"]) in looked_at and len(chosen) < number:
            chosen.append(header)
            counts[kind] += 1
        else:
            queues.setdefault(kind, deque()).append(header)
    while queues and len(chosen) < number:
        kind = min(queues, key=lambda kind: counts[kind])  # of equals the first
        chosen.append(queues[kind].popleft())
        counts[kind] += 1
        if not queues[kind]:
            del queues[kind]
    return sorted(chosen, key=lambda header: (header["file"], header["index"]))


def read_filters(index: Index) -> dict[str, Any]:
    """The filters of the first and the last step of training, or why there are none."""
    steps = sorted(training_files(index))
    try:
        answers = [replay(index, step) for step in dict.fromkeys(steps[:1] + steps[-1:])] or [replay(index, None)]
    except (RagenError, OSError, KeyError, TypeError, ValueError) as error:
        return {"error": str(error), "answers": []}
    held = [answer["step"] for answer in answers]
    return {"error": "", "answers": [answer | {"steps": held} for answer in answers]}


def size_name(count: int) -> str:
    """1234567 -> 1.2 MB"""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} KB"
