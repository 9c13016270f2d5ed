"""Calls into environments on threads of their own, so that one that never returns costs an episode and not the run.

Python cannot end a call that hangs. It can stop waiting for it: a call that takes longer than the limit is given up
together with its thread and its environment, and another thread takes the next calls. All threads are daemons, so
none of them holds up Ctrl-C or the end of the process.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ragen.env.boundary import EnvFault
from ragen.errors import RagenError

T = TypeVar("T")

MAX_HUNG = 64
"""Threads given up and still running; environments that hang more often cannot be played."""
LATE_S = 1.0
"""A watchdog that wakes up so much too late was stopped together with the whole process, and so were the calls."""


POLL_S = 0.5
"""Longest wait of the main thread at a time: a signal that comes just before a wait is only seen after it."""


class EnvTimeout(EnvFault):
    """A call into an environment did not return in time."""


@dataclass(slots=True)
class Clock:
    """What a job tells the watchdog: which call it is making, and since when."""

    what: str = "a call"
    since: float = 0.0  # time.monotonic()
    is_limited: bool = False
    is_given_up: bool = False
    """Nobody waits any more: the job may end."""

    def start(self, what: str, *, is_limited: bool = True) -> None:
        """A call into the environment follows."""
        self.what, self.since, self.is_limited = what, time.monotonic(), is_limited


Work = Callable[[Clock], T]
"""Calls into one environment, one after the other, each announced to the clock."""


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    work: Work[T]
    clock: Clock = field(default_factory=Clock)
    future: Future[T] = field(default_factory=Future)


Jobs = SimpleQueue[_Job[Any] | None]


class _Thread(threading.Thread):
    """Does one job after the other, until it gets None or is given up."""

    def __init__(self, jobs: Jobs, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs = jobs
        self.job: _Job[Any] | None = None
        self.lock = threading.Lock()  # who holds it may decide whether the job is done or given up

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            self.job = job
            result = error = None
            try:
                result = job.work(job.clock)
            except BaseException as raised:
                error = raised
            with self.lock:
                if job.clock.is_given_up:
                    return
                self.job = None
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
            del job, result, error  # a thread that waits keeps nothing alive

    def deadline(self, limit_s: float) -> float:
        """When the present call will have taken too long."""
        job = self.job
        return job.clock.since + limit_s if job is not None and job.clock.is_limited else float("inf")

    def give_up(self, limit_s: float) -> _Job[Any] | None:
        """The job whose call has taken too long, from now on nobody's; None where there is none."""
        with self.lock:
            job = self.job
            if job is None or self.deadline(limit_s) > time.monotonic():
                return None
            job.clock.is_given_up = True
            if self.ident is not None:
                # Ends a loop in Python; a call that waits inside C code continues. The lock keeps the thread alive.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(SystemExit))
            return job


def wait_for(future: Future[T]) -> T:
    """The result of a future, however long it takes; Ctrl-C ends the wait."""
    while not wait([future], POLL_S).done:
        pass
    return future.result()


class CallThreads:
    """`size` threads that make calls into environments; one that takes longer than `limit_s` ends as EnvTimeout."""

    def __init__(self, name: str, *, size: int, limit_s: float | None) -> None:
        self.name, self.size, self.limit_s = name, size, limit_s
        self._jobs: Jobs = SimpleQueue()
        self._threads: list[_Thread] = []
        self._is_closed = threading.Event()

    def submit(self, work: Work[T]) -> Future[T]:
        if not self._threads:
            self._start()
        job = _Job(work)
        self._jobs.put(job)
        return job.future

    @property
    def is_busy(self) -> bool:
        return any(thread.job is not None for thread in self._threads)

    def close(self) -> None:
        """Forget what has not begun and let the threads go; a later `submit` starts new ones."""
        _stop(self._jobs, self._is_closed, self.size)
        self._threads = []

    def _start(self) -> None:
        self._jobs, self._is_closed = SimpleQueue(), threading.Event()
        self._threads = [_Thread(self._jobs, f"env-{self.name}-{number}") for number in range(self.size)]
        for thread in self._threads:
            thread.start()
        if self.limit_s is not None:
            watchdog = _Watchdog(self._threads, self._jobs, self._is_closed, limit_s=self.limit_s)
            threading.Thread(target=watchdog.run, name=f"env-{self.name}-watchdog", daemon=True).start()
        # Managers that nobody closes take their threads with them.
        weakref.finalize(self, _stop, self._jobs, self._is_closed, self.size)


def _stop(jobs: Jobs, is_closed: threading.Event, num_threads: int) -> None:
    is_closed.set()
    with suppress(Empty):
        while True:
            jobs.get_nowait()
    for _ in range(num_threads):
        jobs.put(None)


class _Watchdog:
    """Gives up on calls that take too long and replaces their threads with new ones."""

    def __init__(self, threads: list[_Thread], jobs: Jobs, is_closed: threading.Event, *, limit_s: float) -> None:
        self.threads, self.jobs, self.is_closed, self.limit_s = threads, jobs, is_closed, limit_s
        self.hung: list[_Thread] = []

    def run(self) -> None:
        while True:
            # A call that begins later than now cannot be late before the limit has passed from now on.
            now = time.monotonic()
            until = min([now + self.limit_s, *(thread.deadline(self.limit_s) for thread in self.threads)])
            if self.is_closed.wait(max(0.0, until - now)):
                return
            if time.monotonic() - until > LATE_S:
                self._forgive()
            for index, thread in enumerate(self.threads):
                job = thread.give_up(self.limit_s)
                if job is not None:
                    self.hung = [each for each in (*self.hung, thread) if each.is_alive()]
                    self.threads[index] = _Thread(self.jobs, thread.name)
                    self.threads[index].start()
                    job.future.set_exception(self._verdict(job))

    def _forgive(self) -> None:
        """Count the time of the running calls from now on: the process was stopped, or the machine asleep."""
        for thread in self.threads:
            job = thread.job
            if job is not None:
                job.clock.since = time.monotonic()

    def _verdict(self, job: _Job[Any]) -> Exception:
        what = f"{job.clock.what} did not return within {self.limit_s:g} s"
        if len(self.hung) > MAX_HUNG:
            return RagenError(
                f"{what}, and {len(self.hung) - 1} earlier calls into environments are still hanging. Repair the "
                "environment, or raise its step_timeout in custom_envs."
            )
        return EnvTimeout(what)
