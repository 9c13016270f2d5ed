"""What starts runs: processes on the slots of this machine here, Ray tasks in ray_backend.py.

Tested in tests/sweeps/driving/test_scheduler.py.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragen.sweeps.driving.child import start_child, stop_children
from ragen.sweeps.driving.run import Run
from ragen.sweeps.driving.slots import Slot, thread_settings
from ragen.trainer.checkpoints.checkpoint import LATEST


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEnd:
    """How a process ended."""

    exit_code: int
    wall_time: float
    """Seconds from its start to its end."""
    error: str = ""
    """Why it never started; empty where it did."""


class Job(Protocol):
    """A run that has been handed over."""

    device: str
    """Number and model of its GPUs; empty while it waits for them."""

    def poll(self) -> ProcessEnd | None:
        """Its end, or None before that. Called again after the end it answers the same."""
        ...


class Backend(Protocol):
    """Takes runs and makes jobs of them."""

    def has_room(self) -> bool: ...

    def start(self, run: Run) -> Job: ...

    def stop(self) -> None:
        """End the jobs that have not ended, and wait until they have."""
        ...


class ProcessJob:
    """A run in a process on a slot."""

    def __init__(self, process: subprocess.Popen[bytes], slot: Slot) -> None:
        self.process, self.slot, self.device = process, slot, slot.label
        self._started = time.monotonic()
        self._end: ProcessEnd | None = None

    def poll(self) -> ProcessEnd | None:
        if self._end is None and (code := self.process.poll()) is not None:
            self._end = ProcessEnd(exit_code=code, wall_time=time.monotonic() - self._started)
        return self._end


class LocalBackend:
    """Each slot of this machine takes one run at a time."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._free, self._jobs = list(slots), list[ProcessJob]()
        self._threads = thread_settings(slots)

    def has_room(self) -> bool:
        ended = [job for job in self._jobs if job.poll()]
        self._jobs = [job for job in self._jobs if job not in ended]
        self._free += [job.slot for job in ended]
        return bool(self._free)

    def start(self, run: Run) -> ProcessJob:
        process = start_run(run, self._free[0].devices, self._threads)
        self._jobs.append(ProcessJob(process, self._free.pop(0)))
        return self._jobs[-1]

    def stop(self) -> None:
        stop_children([job.process for job in self._jobs if job.poll() is None])


def start_run(run: Run, devices: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The process of a run on GPUs, or on the CPU where there are none."""
    is_resumed = (run.run_dir / LATEST).exists()
    run.begin(devices)
    return start_child(
        run.command_on(devices),
        log=run.log,
        environment=environment | {"CUDA_VISIBLE_DEVICES": devices},
        is_appended=is_resumed,  # what the first part of a run printed stays
    )
