"""Runs as Ray tasks, on this machine or on a cluster that shares the working directory. Ray is imported here only."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError, RagenError, needing_extra
from ragen.sweeps.driving.backend import ProcessEnd, start_run
from ragen.sweeps.driving.child import GRACE_S, stop_children
from ragen.sweeps.driving.run import Run
from ragen.sweeps.driving.slots import Machine, Slot, ask_nvidia_smi, slot_label, split_list
from ragen.trainer.endings.signals import Signals

with needing_extra("ray", "--ray needs Ray"):
    import ray
    from ray.exceptions import RayError, TaskCancelledError

POLL_S = 0.25


def work(run: Run, folder: str, size: int, has_gpus: bool) -> Iterator[Any]:
    """The task: yields what it runs on when it starts, then exit code and seconds."""
    os.chdir(folder)  # logs and run directories are relative to where the sweep was started
    # Below a shell's `&` SIGINT is ignored, and with it Ray's cancel.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "") if has_gpus else ""
    yield device_label(devices) if has_gpus else f"{size}xCPU"
    started = time.monotonic()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with Signals() as signals, signals.held():  # so that the process is known when the task is cancelled
            processes.append(start_run(run, devices, {}))
        while processes[0].poll() is None:
            time.sleep(POLL_S)  # not wait(): Ray's cancel does not interrupt a system call
    except (OSError, RagenError) as error:
        yield ProcessEnd(exit_code=1, wall_time=0.0, error=str(error))
        return
    finally:
        stop_children(processes)
    yield ProcessEnd(exit_code=processes[0].returncode, wall_time=time.monotonic() - started)


def device_label(devices: str) -> str:
    """Number and model of the GPUs, on the node where the task runs."""
    gpus = split_list(devices)
    return slot_label(gpus, Machine(gpus=gpus, models=ask_nvidia_smi(), is_cpu=False))


class RayJob:
    """A task that Ray starts when its GPUs are free."""

    def __init__(self, answers: Any, log: Path) -> None:
        self.answers, self._log = answers, log
        self.device: str = ""
        self._end: ProcessEnd | None = None

    def poll(self) -> ProcessEnd | None:
        while self._end is None and ray.wait([self.answers], timeout=0)[0]:
            try:
                answer: Any = ray.get(next(self.answers))
            except (RayError, StopIteration) as error:
                self._end = ProcessEnd(exit_code=1, wall_time=0.0)
                if not isinstance(error, TaskCancelledError):
                    self._note(error)
                break
            if isinstance(answer, ProcessEnd):
                self._end = answer
            else:
                self.device = answer
        return self._end

    def _note(self, error: Exception) -> None:
        """What Ray says, into the log: the run itself may have had no chance to say anything."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"the Ray task ended: {lines[-1]}\n")


class RayBackend:
    """Hands every run to Ray at once; Ray starts it when resources are free."""

    def __init__(self, address: str, slots: Sequence[Slot]) -> None:
        is_local, size = address == "local", slots[0].size
        resources: dict[str, Any] = {}
        if is_local:
            has_gpus = not slots[0].label.endswith("CPU")
            if has_gpus:  # Ray gives out the GPUs that it sees
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(slot.devices for slot in slots)
            resources = {"num_cpus": size * len(slots), "num_gpus": size * len(slots) if has_gpus else 0}
            resources["include_dashboard"] = False
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **resources)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RagenError(f"--ray {address}: {str(error).splitlines()[0]}") from error
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        if 0 < num_gpus < size:
            ray.shutdown()
            raise ConfigError(f"--gpus-per-exp is {size}, the Ray cluster has {num_gpus} GPUs. Lower it.")
        if not num_gpus:
            print(f"The Ray cluster has no GPU: every run takes {size} CPU{'s' if size > 1 else ''}.")
        self._size, self._has_gpus = size, num_gpus > 0
        # A training run that fails would fail again; --skip-done repeats it when the cause is gone.
        self._task = ray.remote(work).options(
            num_cpus=1 if num_gpus else size,
            num_gpus=size if num_gpus else 0,
            max_retries=0,
            num_returns="streaming",
        )
        self._jobs: list[RayJob] = []

    def has_room(self) -> bool:
        return True

    def start(self, run: Run) -> RayJob:
        answers = self._task.remote(run, str(Path.cwd()), self._size, self._has_gpus)
        self._jobs.append(RayJob(answers, run.log))
        return self._jobs[-1]

    def stop(self) -> None:
        open_jobs = [job for job in self._jobs if job.poll() is None]
        for job in open_jobs:
            ray.cancel(job.answers)
        deadline = time.monotonic() + GRACE_S + 5
        while any(job.poll() is None for job in open_jobs) and time.monotonic() < deadline:
            time.sleep(0.1)
        ray.shutdown()
