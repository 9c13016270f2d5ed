"""The run directory: everything about a run in open formats, readable without torch.

    config.yaml       the resolved configuration, one comment per key
    metrics.jsonl     one line per step: {"step": n, "metric/path": number, ...}
    episodes/*.jsonl  one line per episode: chat messages, token ids, log-probs, rewards, metadata
    status.json       how the run ended and why

Files appear whole: they are written beside their place and then moved into it. Lines are appended one at a time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragen.errors import RagenError
from ragen.types import Episode, Status, Turn


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


class RunDir:
    """Writes a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def write_config(self, text: str) -> None:
        write_atomic(self.path / "config.yaml", text + "\n")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_dumps({"step": step, **metrics}) + "\n")

    def write_episodes(self, name: str, episodes: Iterable[Episode]) -> Path:
        path = self.path / "episodes" / f"{name}.jsonl"
        write_atomic(path, "".join(_dumps(episode_to_json(episode)) + "\n" for episode in episodes))
        return path

    def write_status(self, state: str, reason: str = "", **facts: Any) -> None:
        """How the run stands: running, finished, failed, early_stopped; and why."""
        record = {"state": state, "reason": reason, **facts}
        write_atomic(self.path / "status.json", json.dumps(record, indent=2) + "\n")


def episode_files(path: Path) -> list[Path]:
    """The episode files of a run directory, or the file itself."""
    if path.is_file():
        return [path]
    files = sorted((path / "episodes").glob("*.jsonl"))
    if not files:
        raise RagenError(f"{path} holds no episodes/*.jsonl. Give a run directory or an episode file.")
    return files
