"""The run directory: everything about a run in open formats, readable without torch.

    config.yaml       the resolved configuration, one comment per key
    metrics.jsonl     one line per step: {"step": n, "metric/path": number, ...}
    tables/*.json     one file per table and step: {"name": ..., "step": n, "columns": [...], "rows": [[...], ...]}
    episodes/*.jsonl  one line per episode: chat messages, token ids, log-probs, rewards, metadata
    status.json       how the run ended and why
    wandb/, tensorboard/   what those trackers write, where they are on

Files appear whole: they are written beside their place and then moved into it. Lines are appended one at a time.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ragen.errors import RagenError
from ragen.types import Episode, Status, Turn

State = Literal["running", "finished", "early_stopped", "interrupted", "failed"]
"""How a run stands. A run whose process was killed stays `running`."""


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON: the conversation in OpenAI's message form, then what training needs of each turn."""
    record = {
        "tag": episode.tag,
        "env_type": episode.env_type,
        "group_id": episode.group_id,
        "member": episode.member,
        "seed": episode.seed,
        "status": episode.status.value,
        "success": episode.is_success,
        "reward": episode.reward,
        "penalty": episode.penalty,
        "num_actions": episode.num_actions,
        "error": episode.error,
        "final_observation": episode.final_observation,
        "messages": episode.messages(),
        "turns": [dataclasses.asdict(turn) for turn in episode.turns],
    }
    for turn in record["turns"]:
        # These stand in the messages already.
        del turn["user"], turn["text"]
    return record


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_json`."""
    system, *exchanges = (message["content"] for message in record["messages"])
    turns = [
        Turn(user=user, text=text, **turn)
        for user, text, turn in zip(exchanges[::2], exchanges[1::2], record["turns"], strict=True)
    ]
    plain = ("tag", "env_type", "group_id", "member", "seed", "error", "final_observation")
    return Episode(
        system=system, turns=turns, status=Status(record["status"]), **{name: record[name] for name in plain}
    )


def _dumps(record: Any) -> str:
    # Models may write lone surrogates; as escapes they survive any text file.
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=True)


def read_episodes(path: Path) -> Iterator[Episode]:
    """The episodes of a JSON lines file; an incomplete last line, as a killed run leaves it, is skipped."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield episode_from_json(json.loads(line))
            except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                if not line.endswith("\n"):
                    return
                raise RagenError(f"{path}, line {number}: not an episode ({type(error).__name__}: {error})") from error


def _append_line(path: Path, line: str) -> None:
    """Add a line that is on the disk when this returns; the rest of a line that a kill cut short goes first."""
    with path.open("a+b") as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.truncate(_end_of_last_line(path))
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _end_of_last_line(path: Path) -> int:
    """The byte after the last newline."""
    return path.read_bytes().rfind(b"\n") + 1


def _table_path(folder: Path, name: str, step: int) -> Path:
    """grad_norm/bucket_1/group_rv_table at step 51 -> tables/grad_norm.bucket_1.group_rv_table_step_51.json"""
    return folder / "tables" / f"{name.replace('/', '.')}_step_{step}.json"


def _step_of(table: Path) -> int:
    return int(table.stem.rpartition("_step_")[2])


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
        _append_line(self.path / "metrics.jsonl", _dumps({"step": step, **metrics}))

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
        """Write a table of a step; its cells are numbers, texts or null."""
        path = _table_path(self.path, name, step)
        record = {"name": name, "step": step, "columns": list(columns), "rows": [list(row) for row in rows]}
        write_atomic(path, _dumps(record) + "\n")
        return path

    def truncate_after(self, step: int) -> None:
        """Forget what was logged after `step`, the step of the checkpoint a run resumes from; -1 forgets everything.

        The run writes those steps again, so each has one line. Dropped lines move to metrics.dropped.jsonl, dropped
        episodes to episodes/dropped.
        """
        path = self.path / "metrics.jsonl"
        if path.exists():
            records = read_metrics(path)
            kept = [record for record in records if record["step"] <= step]
            for record in records:
                if record["step"] > step:
                    _append_line(self.path / "metrics.dropped.jsonl", _dumps(record))
            write_atomic(path, "".join(_dumps(record) + "\n" for record in kept))
        for table in self.path.glob("tables/*_step_*.json"):
            if _step_of(table) > step:
                table.unlink()
        for episodes in self.path.glob("episodes/*_step_*.jsonl"):
            if _step_of(episodes) > step:
                dropped = episodes.parent / "dropped" / episodes.name
                dropped.parent.mkdir(exist_ok=True)
                episodes.replace(dropped)

    def write_episodes(self, name: str, episodes: Iterable[Episode]) -> Path:
        path = self.path / "episodes" / f"{name}.jsonl"
        write_atomic(path, "".join(_dumps(episode_to_json(episode)) + "\n" for episode in episodes))
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
        raise RagenError(f"{path} holds no {name}. Give a run directory.")
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


def read_table(path: Path, name: str, step: int) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table of a run directory."""
    file = _table_path(path, name, step)
    if not file.exists():
        raise RagenError(f"{path} holds no table {name} of step {step}. There are: {table_steps(path, name)}")
    record = json.loads(file.read_text(encoding="utf-8"))
    return record["columns"], record["rows"]


def table_steps(path: Path, name: str) -> list[int]:
    """The steps at which a table was logged."""
    files = path.glob(f"tables/{glob.escape(name.replace('/', '.'))}_step_*.json")
    return sorted(_step_of(file) for file in files)


def read_status(path: Path) -> dict[str, Any]:
    """status.json of a run directory: state, reason, step, early_stop, started_at, updated_at, seconds."""
    return json.loads(_existing(path, "status.json").read_text(encoding="utf-8"))


def episode_files(path: Path) -> list[Path]:
    """The episode files of a run directory, or the file itself."""
    if path.is_file():
        return [path]
    files = sorted((path / "episodes").glob("*.jsonl"))
    if not files:
        raise RagenError(f"{path} holds no episodes/*.jsonl. Give a run directory or an episode file.")
    return files
