"""A run: what is started, where it writes and how far it is. Sweeps, helpers, the study and the search make them.

Everything is read from the run directory (metrics.jsonl, status.json); console text is for people.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragen.config import Config
from ragen.files import stamp
from ragen.studies.conditions import ListedRun
from ragen.studies.outcomes import STATUS_OF_STATE
from ragen.tracking.lock import run_lock
from ragen.tracking.rundir import read_metrics, read_status, write_atomic
from ragen.tracking.validation import mean_success

PROGRAM = (sys.executable, "-m", "ragen.cli")
STATUS = "status.json"
FOUND = "\n# in a folder "
"""Between a command and what it found in its run directory."""
DEVICES = "{devices}"
"""Stands in a command for the GPU ids of the slot it runs on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(ListedRun):
    """One command with a run directory."""

    command: tuple[str, ...]
    """Program and arguments; {devices} stands for the GPU ids of the slot."""
    log: Path
    """What it prints."""
    total_steps: int
    fields: Mapping[str, str] = field(default_factory=dict)
    """What its result line begins with."""
    has_score: bool = False
    """Whether its result line names the score of the last validation, too."""
    config: Config | None = None
    """What its command leads to, where that is one training run; it is checked before anything is started."""

    @property
    def result(self) -> Path:
        return self.log.with_suffix(".result")

    @property
    def result_record(self) -> Path:
        return self.log.with_suffix(".result.json")

    @property
    def command_file(self) -> Path:
        return self.log.with_suffix(".command")

    def command_on(self, devices: str) -> list[str]:
        return [argument.replace(DEVICES, devices) for argument in self.command]

    def is_done(self) -> bool:
        """Whether exactly this command has been run to its end, or to an early stop."""
        return self.is_last_command() and self.state() in STATUS_OF_STATE

    def state(self) -> str | None:
        """What the run says of itself; None where there is no status but one that another command has left."""
        is_there = (self.run_dir / STATUS).is_file() and self._noted()[1] != _left(self.run_dir)
        return read_status(self.run_dir)["state"] if is_there else None

    def is_last_command(self) -> bool:
        """Whether the last command that was started in the run directory is this one, on whatever GPUs."""
        return _arguments(shlex.split(self._noted()[0])) == _arguments(self.command)

    def begin(self, devices: str) -> None:
        """Note the command, and which status another one has left: the trainer moves that aside with its run."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with run_lock(self.run_dir):  # another process may be at work there
            for file in (self.result, self.result_record):
                file.unlink(missing_ok=True)
            left = self._noted()[1] if self.is_last_command() else _left(self.run_dir)
            # Both at once, so that a kill right here leaves no finished state beside a command that never ran.
            write_atomic(self.command_file, f"{shell_line(self.command_on(devices))}{FOUND}{left}\n")

    def _noted(self) -> tuple[str, str]:
        """The last command, and what it found there."""
        text = self.command_file.read_text() if self.command_file.exists() else ""
        command, _, left = text.partition(FOUND)
        return command, left.strip()


def shell_line(command: Sequence[str]) -> str:
    """A command as one types it; quotes inside stay readable: "system.CUDA_VISIBLE_DEVICES='0,1'" """
    return " ".join(
        f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word) for word in command
    )


def _arguments(command: Sequence[str]) -> list[str]:
    return [argument for argument in command[1:] if not argument.startswith("system.CUDA_VISIBLE_DEVICES=")]


def _left(run_dir: Path) -> str:
    """The status that is there now, in words that change with the file."""
    found = stamp(run_dir / STATUS)
    return f"with a {STATUS} of {found}" if found else "without a status"


class Progress:
    """The newest step and validation success of a run; the file is read again only when it has changed."""

    def __init__(self, run: Run) -> None:
        self._metrics = run.run_dir / "metrics.jsonl"
        self._existing: tuple[int, int, int] | None = None
        self._seen: tuple[int, int, int] | None = None
        self.step: int | None = None
        self.success: float | None = None
        self.validated_step: int | None = None

    def skip_existing(self) -> None:
        """The metrics that are there now belong to an earlier run."""
        self._existing = self._seen = stamp(self._metrics)

    @property
    def has_new_metrics(self) -> bool:
        """Anything was written behind those that were skipped."""
        return stamp(self._metrics) != self._existing

    def read(self) -> None:
        version = stamp(self._metrics)
        if version is None or version == self._seen:
            return
        self._seen = version
        for record in read_metrics(self._metrics):
            self.step = record["step"]
            if (success := mean_success(record)) is not None:
                self.success, self.validated_step = success.mean, record["step"]
