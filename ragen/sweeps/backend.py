"""What starts runs: processes on the slots of this machine here, Ray tasks in ray_backend.py."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragen.sweeps.child import start_child, stop_children
from ragen.sweeps.run import Run
from ragen.sweeps.slots import Slot, thread_settings
from ragen.trainer.checkpoint import LATEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What the end of a process tells."""

    exit_code: int
    wall_time: float
    """Seconds from its start to its end."""
    error: str = ""
    """Why it never started; empty where it did."""


class Job(Protocol):
    """A run that has been handed over."""

    @property
    def device(self) -> str:
        """Number and model of its GPUs; empty while it waits for them."""
        ...

    def poll(self) -> Ended | None:
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
        self.process, self.slot = process, slot
        self.device: str = slot.label
        self._started = time.monotonic()
        self._ended: Ended | None = None

    def poll(self) -> Ended | None:
        if self._ended is None and (code := self.process.poll()) is not None:
            self._ended = Ended(exit_code=code, wall_time=time.monotonic() - self._started)
        return self._ended


class LocalBackend:
    """Each slot of this machine takes one run at a time."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = list(slots)
        self._jobs: list[ProcessJob] = []
        self._threads = thread_settings(self._slots)

    def has_room(self) -> bool:
        return bool(self._free())

    def start(self, run: Run) -> ProcessJob:
        slot = self._free()[0]
        process = start_run(run, slot.devices, self._threads)
        self._jobs.append(ProcessJob(process, slot))
        return self._jobs[-1]

    def stop(self) -> None:
        stop_children([job.process for job in self._jobs if job.poll() is None])

    def _free(self) -> list[Slot]:
        self._jobs = [job for job in self._jobs if job.poll() is None]
        taken = {id(job.slot) for job in self._jobs}  # two slots may share a GPU: --gpus 0,0
        return [slot for slot in self._slots if id(slot) not in taken]


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
