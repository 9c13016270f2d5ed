"""A run of a sweep: what is started, where it writes, how it stands and how it ended.

Everything is read from the run directory (metrics.jsonl, status.json); console text is for people.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ragen.errors import NOTHING_LEARNED
from ragen.tracking.lock import RunLock
from ragen.tracking.names import seconds
from ragen.tracking.rundir import read_metrics, read_status, write_atomic
from ragen.tracking.validation import mean_success

DEVICES = "{devices}"
"""Stands in a command for the GPU ids of the slot it runs on."""

Status = Literal["success", "early_stopped", "fail", "missing"]
DONE: tuple[Status, ...] = ("success", "early_stopped")
STATUS_OF_STATE: dict[str, Status] = {"finished": "success", "early_stopped": "early_stopped"}

TIMES = {"train_time": seconds("train_total"), "eval_time": seconds("eval_total"), "total_time": seconds("total")}
"""Field of a result line -> metric of the last step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One training run of a sweep."""

    name: str
    """Its experiment name, which no other run of the sweep has."""
    command: tuple[str, ...]
    """Program and arguments; {devices} stands for the GPU ids of the slot."""
    log: Path
    """What it prints."""
    run_dir: Path
    """Its run directory: metrics.jsonl, status.json, checkpoints."""
    total_steps: int
    value: str = ""
    """What the sweep varies, as typed."""
    seed: int = 1
    """1 is the plain run; 2, 3, ... repeat it with other random numbers."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """What its result line begins with."""

    @property
    def result(self) -> Path:
        return self.log.with_suffix(".result")

    @property
    def command_file(self) -> Path:
        return self.log.with_suffix(".command")

    def command_on(self, devices: str) -> list[str]:
        return [argument.replace(DEVICES, devices) for argument in self.command]

    def is_done(self) -> bool:
        """Whether this very command has been run to its end, or to an early stop."""
        return self.is_last_command() and read_state(self.run_dir) in STATUS_OF_STATE

    def is_last_command(self) -> bool:
        """Whether the last command that wrote into the run directory is this one, on whatever GPUs."""
        return self.last_arguments() == _arguments(self.command)

    def last_arguments(self) -> list[str] | None:
        """The arguments of the last command, without the GPU ids; None if there was none."""
        return _arguments(shlex.split(self.command_file.read_text())) if self.command_file.exists() else None

    def begin(self, devices: str) -> None:
        """Note the command. What a run with another command said about itself is put away."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with RunLock(self.run_dir):  # another process may be at work there
            self.result.unlink(missing_ok=True)
            if not self.is_last_command():
                # First, so that a kill right here leaves no finished state beside a command that never ran.
                (self.run_dir / "status.json").unlink(missing_ok=True)
            write_atomic(self.command_file, shell_line(self.command_on(devices)) + "\n")


def shell_line(command: Sequence[str]) -> str:
    """A command as one types it; quotes inside stay readable: "system.CUDA_VISIBLE_DEVICES='0,1'" """
    return " ".join(
        f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word) for word in command
    )


def _arguments(command: Sequence[str]) -> list[str]:
    return [argument for argument in command[1:] if not argument.startswith("system.CUDA_VISIBLE_DEVICES=")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    early_stop: str | None = None
    """The rule that ended it, as in the metric early_stopped/<rule>."""
    times: Mapping[str, float] = field(default_factory=dict)
    """train_time, eval_time and total_time in seconds, as far as the run logged them."""
    wall_time: float | None = None
    device: str = "N/A"
    """Number and model of the GPUs, as in 4xH100."""
    last_lines: tuple[str, ...] = ()
    """The end of the log of a run that failed."""


MISSING = Outcome(status="missing")


def outcome_of(run: Run, *, exit_code: int, wall_time: float | None, device: str) -> Outcome:
    """How a run ended, by its own status.json; a command that failed otherwise has failed whatever is there."""
    status = STATUS_OF_STATE.get(read_state(run.run_dir) or "", "fail")
    # An early stop is a result, also where nothing was learned and the command says so by its exit code.
    if exit_code not in ((0, NOTHING_LEARNED) if status == "early_stopped" else (0,)):
        status = "fail"
    records = read_records(run.run_dir)
    last = records[-1] if records else {}
    return Outcome(
        status=status,
        early_stop=read_status(run.run_dir)["early_stop"] if status == "early_stopped" else None,
        times={name: last[metric] for name, metric in TIMES.items() if metric in last},
        wall_time=wall_time,
        device=device,
        last_lines=tail(run.log) if status == "fail" else (),
    )


def read_state(run_dir: Path) -> str | None:
    return read_status(run_dir)["state"] if (run_dir / "status.json").is_file() else None


def read_records(run_dir: Path) -> list[dict[str, Any]]:
    return read_metrics(run_dir) if (run_dir / "metrics.jsonl").is_file() else []


def tail(log: Path, num_lines: int = 2) -> tuple[str, ...]:
    """The last lines of a log that say something."""
    if not log.is_file():
        return ()
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return tuple(line[:300] for line in lines[-num_lines:])


def success_of(record: Mapping[str, Any]) -> float | None:
    """Validation success of a step, the mean over its tags; None at steps without validation."""
    estimate = mean_success(record)
    return estimate.mean if estimate else None


class Progress:
    """The newest step and validation success of a run; the file is read again only when it has changed."""

    def __init__(self, run: Run) -> None:
        self._metrics = run.run_dir / "metrics.jsonl"
        self._seen: tuple[int, int] | None = None
        self.step: int | None = None
        self.success: float | None = None
        self.validated_step: int | None = None

    def forget(self) -> None:
        """What lies there now is of a former run."""
        self._seen = self._version()

    def _version(self) -> tuple[int, int] | None:
        try:
            stat = self._metrics.stat()
        except OSError:  # not there yet
            return None
        return stat.st_mtime_ns, stat.st_size

    def read(self) -> None:
        version = self._version()
        if version is None or version == self._seen:
            return
        self._seen = version
        for record in read_metrics(self._metrics):
            self.step = record["step"]
            if (success := success_of(record)) is not None:
                self.success, self.validated_step = success, record["step"]
