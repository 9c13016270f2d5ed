"""The run directory: everything about a run in open formats, readable without torch.

    config.yaml       the resolved configuration, one comment per key
    metrics.jsonl     one line per step: {"step": n, "metric/path": number, ...}
    tables/*.json     one file per table and step: {"name": ..., "step": n, "columns": [...], "rows": [[...], ...]}
    episodes/*.jsonl.gz   one line per episode: chat messages, token ids, log-probs, rewards, metadata (episodes.py)
    preflight.json    what a silent agent, a random one, the solver and the first model earn
    status.json       how the run ended and why
    card.json, card.md    what the run was, met and took, over all its resumes (run_card.py)
    wandb/, tensorboard/, mlflow/, trackio/   what trackers write, where they are on
    trackers/         what those of one's own write

Files appear whole: they are written beside their place and then moved into it. Lines are appended one at a time.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ragen.errors import RagenError
from ragen.files import naming, read_object, value_at
from ragen.tracking.episodes import COMPRESSED, PLAIN, SUFFIXES, dumps, episode_lines, episode_name, pack_member
from ragen.types import Episode

State = Literal["running", "finished", "early_stopped", "interrupted", "failed"]
"""How a run stands. A run whose process was killed stays `running`."""

PREFLIGHT = "preflight.json"
"""File of a run directory: what a silent agent, a random one, the solver and the first model earn."""
TRACKERS_FOLDER = "trackers"
"""Folder of a run directory that trackers of one's own may write to."""
SFT_RECORD = "sft.json"
"""File in the directory of a supervised run: what its weights follow from."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path), temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _append_line(path: Path, line: str) -> None:
    """Add a line that is on the disk when this returns; the rest of a line that a kill cut short goes first."""
    with naming(path), path.open("a+b") as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _table_path(folder: Path, name: str, step: int) -> Path:
    """grad_norm/bucket_1/group_rv_table at step 51 -> tables/grad_norm.bucket_1.group_rv_table_step_51.json"""
    return folder / "tables" / f"{name.replace('/', '.')}_step_{step}.json"


def _step_in(name: str) -> int:
    """train_step_3 -> 3"""
    return int(name.rpartition("_step_")[2])


class RunDir:
    """Writes a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._started_at = datetime.now(UTC)
        self._started = time.monotonic()

    def write_config(self, text: str) -> None:
        write_atomic(self.path / "config.yaml", text + "\n")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step."""
        _append_line(self.path / "metrics.jsonl", dumps({"step": step, **metrics}))

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
        """Write a table of a step; its cells are numbers, texts or null."""
        path = _table_path(self.path, name, step)
        record = {"name": name, "step": step, "columns": list(columns), "rows": [list(row) for row in rows]}
        write_atomic(path, dumps(record) + "\n")
        return path

    def truncate_after(self, step: int) -> None:
        """Drop what was logged after `step`, the step of the checkpoint a run resumes from; -1 drops everything.

        The run writes those steps again, so each has one line. Dropped lines move to metrics.dropped.jsonl, dropped
        episodes to episodes/dropped.
        """
        path = self.path / "metrics.jsonl"
        if path.exists():
            records = read_metrics(path)
            kept = [record for record in records if record["step"] <= step]
            for record in records:
                if record["step"] > step:
                    _append_line(self.path / "metrics.dropped.jsonl", dumps(record))
            write_atomic(path, "".join(dumps(record) + "\n" for record in kept))
        for table in self.path.glob("tables/*_step_*.json"):
            if _step_in(table.stem) > step:
                table.unlink()
        for episodes in [file for end in SUFFIXES for file in self.path.glob(f"episodes/*_step_*{end}")]:
            if _step_in(episode_name(episodes)) > step:
                dropped = episodes.parent / "dropped" / episodes.name
                dropped.parent.mkdir(exist_ok=True)
                episodes.replace(dropped)

    def write_episodes(self, name: str, episodes: Iterable[Episode], *, is_compressed: bool = True) -> Path:
        path = self.path / "episodes" / f"{name}{COMPRESSED if is_compressed else PLAIN}"
        lines = episode_lines(episodes)
        write_atomic(path, b"".join(map(pack_member, lines) if is_compressed else lines))
        return path

    def write_status(
        self, state: State, reason: str = "", *, step: int | None = None, early_stop: str | None = None, **facts: Any
    ) -> None:
        """How the run stands and why; `early_stop` is the rule that ended it, as in the metric early_stopped/<rule>."""
        record = {
            "state": state,
            "reason": reason,
            "step": step,
            "early_stop": early_stop,
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "updated_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._started, 1),
            **facts,
        }
        write_atomic(self.path / "status.json", json.dumps(record, indent=2) + "\n")


def _existing(path: Path, name: str) -> Path:
    """The file `name` of a run directory; a path to the file itself is fine, too."""
    file = path / name if path.is_dir() else path
    if not file.exists():
        raise RagenError(f"{path} {f'holds no {name}' if path.is_dir() else 'does not exist'}. Give a run directory.")
    return file


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, by run directory or file; an incomplete last line, left by a kill, is skipped."""
    path = _existing(path, "metrics.jsonl")
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            record = json.loads(line)
            assert isinstance(record["step"], int)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise RagenError(f"{path}, line {number}: not the metrics of a step ({error!r})") from error
        records.append(record)
    return records


def read_records(run: Path) -> list[dict[str, Any]]:
    """The same of a run that may not have begun: none without the file."""
    return read_metrics(run) if (run / "metrics.jsonl").is_file() else []


def read_table(path: Path, name: str, step: int) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table of a run directory."""
    file = _table_path(path, name, step)
    if not file.exists():
        raise RagenError(f"{path} holds no table {name} of step {step}. There are: {table_steps(path, name)}")
    record = read_object(file)
    return value_at(record, "columns", file), value_at(record, "rows", file)


def table_steps(path: Path, name: str) -> list[int]:
    """The steps at which a table was logged."""
    files = path.glob(f"tables/{glob.escape(name.replace('/', '.'))}_step_*.json")
    return sorted(_step_in(file.stem) for file in files)


def read_status(path: Path) -> dict[str, Any]:
    """status.json of a run directory: state, reason, step, early_stop, started_at, updated_at, seconds."""
    return read_object(_existing(path, "status.json"))
