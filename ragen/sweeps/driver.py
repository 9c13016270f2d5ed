"""The one driver of runs: what sweeps, helper scripts, the study and the search plan is checked and worked off here.

A run that has ended is left out when the same command is given again; one that failed starts again, from its newest
checkpoint where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ragen.errors import ConfigError, Interrupted
from ragen.sweeps.backend import Backend, LocalBackend
from ragen.sweeps.results import SummaryLog, outcome_before, write_result
from ragen.sweeps.run import Run, shell_line
from ragen.sweeps.scheduler import Scheduler
from ragen.sweeps.slots import Slot
from ragen.sweeps.view import make_view
from ragen.tracking.outcomes import Outcome
from ragen.trainer.checkpoint import LATEST
from ragen.trainer.start import check_own_changes, plan_start


def drive(
    runs: Sequence[Run],
    slots: Sequence[Slot],
    *,
    title: str,
    header: Sequence[str] = (),
    summary: Path | None = None,
    ray: str | None = None,
    is_dry: bool = False,
    skip_done: bool = True,
    resume_with: str = "the same command",
) -> dict[str, Outcome] | None:
    """Run what has to be run; name -> outcome in the order of the values, or None after a dry run.

    `summary` is the summary log, which begins with `header`. A signal first ends the runs, then this program.
    """
    check_folders(runs)
    done = {run.name: outcome_before(run) for run in runs if skip_done and run.is_done()}
    if is_dry:
        print_plan(title, runs, slots, done)
        return None
    check_ready([run for run in runs if run.name not in done])
    backend = make_backend(ray, slots)
    log = SummaryLog(summary, header) if summary else None
    if log:
        log.add(*done.values())

    def on_end(run: Run, outcome: Outcome) -> None:
        write_result(run, outcome)
        if log:
            log.add(outcome)

    scheduler = Scheduler(runs, backend, view=make_view(), on_end=on_end)
    scheduler.skip(done)
    values = [run.value for run in runs]
    states = sorted(scheduler.states, key=lambda state: values.index(state.run.value))
    try:
        scheduler.work()
    except Interrupted as interrupted:
        interrupted.note = f"no run is left behind, and {resume_with} resumes"
        raise
    finally:
        if log:
            log.finish([state.outcome for state in states])
            print(f"Summary: {summary}")
    return {state.run.name: state.outcome for state in states}


def make_backend(ray: str | None, slots: Sequence[Slot]) -> Backend:
    if ray is None:
        return LocalBackend(slots)
    from ragen.sweeps.ray_backend import RayBackend

    return RayBackend(ray, slots)


def check_folders(runs: Sequence[Run]) -> None:
    """No two runs share a directory, and none continues what another command has trained."""
    owners: dict[Path, str] = {}
    for run in runs:
        if other := owners.get(run.run_dir):
            raise ConfigError(
                f"{other} and {run.name} would both write into {run.run_dir}. Leave trainer.default_local_dir out."
            )
        owners[run.run_dir] = run.name
        if run.config:
            check_own_changes(run.config)


def check_ready(runs: Sequence[Run]) -> None:
    """What the runs need is there: trackers, model, a trainer that can do it, checkpoints one can resume from."""
    for config in [run.config for run in runs if run.config]:
        plan_start(config)  # a run with nothing left to do is accepted


def print_plan(title: str, runs: Sequence[Run], slots: Sequence[Slot], done: Mapping[str, Outcome]) -> None:
    """What would be run, in the order of the queue, with the commands as they would be on the first free slot."""
    print(f"{title}: {len(runs)} runs on {len(slots)} slots ({', '.join(slot.label for slot in slots)}), a dry run")
    num_queued = 0
    for run in runs:
        is_resumed = (run.run_dir / LATEST).exists()
        plan = "resumes from its newest checkpoint" if is_resumed else "new"
        if run.name in done:
            plan = "done before, skipped"
        print(f"\n# {run.name} ({plan})\n# log {run.log}, run directory {run.run_dir}")
        if run.name not in done:
            devices = slots[num_queued % len(slots)].devices
            print(shell_line(["env", f"CUDA_VISIBLE_DEVICES={devices}", *run.command_on(devices)]))
            num_queued += 1
