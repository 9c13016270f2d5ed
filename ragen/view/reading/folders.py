"""Which runs lie below the folders that were given. Ids are looked up among them, never joined to a path."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.errors import ConfigError, RagenError

DEFAULTS = ("checkpoints", "results", "logs", "model_saving")
"""Where runs lie when no folder is given."""
MARKS = frozenset({"status.json", "metrics.jsonl"})
"""A folder with one of these is a run."""
NOT_RUNS = frozenset(
    {
        "episodes",
        "tables",
        "wandb",
        "tensorboard",
        "mlflow",
        "trackio",
        "actor",
        "critic",
        "node_modules",
        "__pycache__",
    }
)
"""Folders in which no run begins."""
FRESH_S = 1.0
"""How long a look at the folders counts."""


class NotThere(RagenError):
    """What was asked for does not exist, or not any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A run directory."""

    id: str
    """Number of the root and the path below it: 0/sokoban/a."""
    path: Path


def existing(folders: Sequence[Path]) -> list[Path]:
    """The folders that were given, or those of DEFAULTS that exist."""
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ConfigError(f"{folder} {what}. Give run directories, or folders with runs below them.")
    found = list(folders) or [Path(name) for name in DEFAULTS if Path(name).is_dir()]
    if not found:
        raise ConfigError(
            f"Here is none of the folders {', '.join(DEFAULTS)}. Give folders with runs: ragen view DIR ..."
        )
    return found


class Folders:
    """The roots and the runs below them, looked up again when a second has passed."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = list(roots)
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._looked_at: float | None = None

    def entries(self, *, is_fresh: bool = False) -> dict[str, Entry]:
        """Id -> run, in the order of the roots and names. `is_fresh` looks again at once."""
        with self._lock:
            now = time.monotonic()
            if is_fresh or self._looked_at is None or now - self._looked_at > FRESH_S:
                self._entries = _scan(self.roots)
                self._looked_at = time.monotonic()
            return self._entries

    def find(self, run_id: str) -> Entry:
        entry = self.entries().get(run_id) or self.entries(is_fresh=True).get(run_id)
        if entry is None:
            raise NotThere("This run does not exist, or not any more.")
        return entry


def _scan(roots: Sequence[Path]) -> dict[str, Entry]:
    """A run below two roots belongs to the first."""
    found: dict[str, Entry] = {}
    seen: set[str] = set()
    for index, root in enumerate(roots):
        for folder in _runs_below(root):
            if (real := os.path.realpath(folder)) not in seen:
                seen.add(real)
                run_id = id_of(index, root, folder)
                found[run_id] = Entry(id=run_id, path=Path(folder))
    return found


def id_of(index: int, root: Path, folder: str) -> str:
    """Number of the root and the path below it; names that are no UTF-8 stay readable and distinct."""
    return f"{index}/{os.fsencode(os.path.relpath(folder, root)).decode('utf-8', 'backslashreplace')}"


def _runs_below(root: Path) -> Iterator[str]:
    """Folders with a mark. Links to folders are not followed: they may lead out of the root, or in circles."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if may_hold_runs(name))
        if not MARKS.isdisjoint(files):
            yield folder


def may_hold_runs(name: str) -> bool:
    """Whether a folder of this name is looked into."""
    return name not in NOT_RUNS and not name.startswith((".", "global_step_"))
