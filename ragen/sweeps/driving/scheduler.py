"""Works off a list of runs, as many at a time as the backend takes; no run stops another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ragen.errors import RagenError
from ragen.studies.outcomes import Outcome, Status
from ragen.sweeps.driving.backend import Backend, Job
from ragen.sweeps.driving.results import missing, never_started, outcome_before, outcome_of
from ragen.sweeps.driving.run import Progress, Run
from ragen.trainer.endings.signals import Signals

POLL_S = 0.25

Phase = Literal["queued", "running", "done", "early stopped", "failed", "stopped", "done before"]
PHASE_OF_STATUS: dict[Status, Phase] = {"success": "done", "early_stopped": "early stopped", "fail": "failed"}


@dataclass(slots=True)
class RunState:
    """How a run of the list stands."""

    run: Run
    progress: Progress
    outcome: Outcome
    phase: Phase = "queued"
    before: Outcome | None = None
    """How the same command had ended before it was started."""
    job: Job | None = None
    started_at: float | None = None

    @property
    def device(self) -> str:
        """Empty while it waits."""
        return self.job.device if self.job else ""

    @property
    def seconds(self) -> float | None:
        """The time it has been running, or ran."""
        if self.outcome.wall_time is not None or self.started_at is None:
            return self.outcome.wall_time
        return time.monotonic() - self.started_at


class View(Protocol):
    """Shows the states of all runs; the table on a terminal, lines elsewhere."""

    def show(self, states: Sequence[RunState]) -> None: ...

    def close(self) -> None: ...


class Scheduler:
    """Queue, jobs and signals. `on_end` is called with every run that came to its end, in that order."""

    def __init__(
        self, runs: Sequence[Run], backend: Backend, *, view: View, on_end: Callable[[Run, Outcome], None]
    ) -> None:
        names = [run.name for run in runs]
        assert len(set(names)) == len(names), f"two runs have the same name: {sorted(names)}"
        self.states = [RunState(run, Progress(run), missing(run)) for run in runs]
        self._backend, self._view, self._on_end = backend, view, on_end

    def skip(self, done: dict[str, Outcome]) -> None:
        """Leave out runs, by name, that ended before."""
        for state in self.states:
            if outcome := done.get(state.run.name):
                state.outcome, state.phase = outcome, "done before"
                state.progress.read()

    def work(self) -> None:
        """Run everything. A signal ends the runs first, and is then raised as Interrupted."""
        with Signals() as signals:
            try:
                while any(state.phase in ("queued", "running") for state in self.states):
                    with signals.held():  # so that no process starts unnoticed
                        self._start()
                        self._look()
                        self._view.show(self.states)
                    time.sleep(POLL_S)
            finally:
                self._backend.stop()
                self._look(is_stopped=True)
                self._view.show(self.states)
                self._view.close()

    def _start(self) -> None:
        for state in self.states:
            if state.phase == "queued" and state.job is None and self._backend.has_room():
                state.before = outcome_before(state.run) if state.run.is_done() else None
                state.progress.skip_existing()
                try:
                    state.job = self._backend.start(state.run)
                except (OSError, RagenError) as error:
                    self._end(state, never_started(state.run, str(error)))

    def _look(self, *, is_stopped: bool = False) -> None:
        for state in self.states:
            if state.job is None or state.phase not in ("queued", "running"):
                continue
            if state.device and state.phase == "queued":
                state.phase, state.started_at = "running", time.monotonic()
            end = state.job.poll()  # before the files are read: what they say is then final
            if state.phase == "running":
                state.progress.read()
            if end is None:
                continue
            if end.error:
                self._end(state, never_started(state.run, end.error))
                continue
            outcome = outcome_of(
                state.run, exit_code=end.exit_code, wall_time=end.wall_time, device=state.device or "N/A"
            )
            if state.before and state.before.status == outcome.status and not state.progress.has_new_metrics:
                outcome = state.before  # nothing was left to do
            if is_stopped and outcome.status == "fail":
                state.phase = "stopped"  # by us
            else:
                self._end(state, outcome)

    def _end(self, state: RunState, outcome: Outcome) -> None:
        state.outcome, state.phase = outcome, PHASE_OF_STATUS[outcome.status]
        self._on_end(state.run, outcome)
