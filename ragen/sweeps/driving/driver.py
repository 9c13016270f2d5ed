"""The one driver of runs: what sweeps, helper scripts, the study and the search plan is checked and worked off here.

A run that has ended is left out when the same command is given again; one that failed starts again, from its newest
checkpoint where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ragen.config.schema import Config
from ragen.config.trainer import TrainerConfig
from ragen.errors import ConfigError, Interrupted
from ragen.studies.outcomes import DONE, Outcome
from ragen.sweeps.driving.backend import Backend, LocalBackend
from ragen.sweeps.driving.results import SummaryLog, outcome_before, write_result
from ragen.sweeps.driving.run import Run, shell_line
from ragen.sweeps.driving.scheduler import Scheduler
from ragen.sweeps.driving.slots import Slot
from ragen.sweeps.driving.view import make_view
from ragen.tracking.console import counted, duration
from ragen.trainer.checkpoints.checkpoint import LATEST
from ragen.trainer.starting.start import check_own_changes, checkpoint_bytes, plan_start


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
    left = [run for run in runs if run.name not in done]
    num_bytes = check_ready(left)
    if len(runs) > 1:
        print(plan_line(title, runs, done, len(slots), num_bytes), flush=True)
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


def exit_code(outcomes: Mapping[str, Outcome]) -> int:
    """An early stop is a result; a failure is not."""
    return 0 if all(outcome.status in DONE for outcome in outcomes.values()) else 1


def make_backend(ray: str | None, slots: Sequence[Slot]) -> Backend:
    if ray is None:
        return LocalBackend(slots)
    from ragen.sweeps.driving.ray_backend import RayBackend

    return RayBackend(ray, slots)


def check_folders(runs: Sequence[Run]) -> None:
    """No two runs share a directory, none is several, and none continues what another command has trained."""
    owners: dict[Path, str] = {}
    for run in runs:
        if other := owners.get(run.run_dir):
            raise ConfigError(
                f"{other} and {run.name} would both write into {run.run_dir}. Leave trainer.default_local_dir out."
            )
        owners[run.run_dir] = run.name
        if run.config:
            check_is_one(run.config)
            check_own_changes(run.config)


def check_is_one(config: Config) -> None:
    """A run of a list is one run."""
    if config.trainer.seeds > 1:
        raise ConfigError(
            f"trainer.seeds={config.trainer.seeds} would repeat every run within itself. Use --seeds, where the "
            "command has it, or leave trainer.seeds out."
        )


def check_ready(runs: Sequence[Run]) -> int:
    """What the runs need is there: trackers, model, a trainer that can do it, checkpoints one can resume from.

    The bytes that the checkpoints of all of them will take.
    """
    starts = [(run.config, plan_start(run.config)) for run in runs if run.config]  # one with nothing to do is accepted
    return sum(checkpoint_bytes(config, start) * kept_checkpoints(config.trainer) for config, start in starts)


def kept_checkpoints(trainer: TrainerConfig) -> int:
    """How many are on the disk at the end; while one is written there is one more."""
    if trainer.save_freq < 1:
        return 0
    written = -(-trainer.total_training_steps // trainer.save_freq)
    return min(written, trainer.max_actor_ckpt_to_keep or written)


def plan_line(title: str, runs: Sequence[Run], done: Mapping[str, Outcome], num_slots: int, num_bytes: int) -> str:
    """What lies ahead: KL sweep: 3 of 4 runs to do, 2 at a time; about 1.2 GB of checkpoints; about 5 min 0 s by ..."""
    left = [run for run in runs if run.name not in done]
    num_parallel = min(num_slots, len(left))
    parts = [f"{title}: {len(left)} of {len(runs)} runs to do, {num_parallel} at a time"]
    if num_bytes:
        parts.append(f"about {num_bytes / 1e9:.1f} GB of checkpoints")
    steps = sum(run.total_steps for run in runs if run.name in done)
    if steps and left:
        seconds = sum(outcome.wall_time or 0.0 for outcome in done.values()) / steps
        expected = seconds * sum(run.total_steps for run in left) / num_parallel
        parts.append(f"about {duration(expected)} by the runs that have ended")
    elif left:
        parts.append("the time is known when a run has ended")
    return "; ".join(parts) + "."


def print_plan(title: str, runs: Sequence[Run], slots: Sequence[Slot], done: Mapping[str, Outcome]) -> None:
    """What would be run, in the order of the queue, with the commands as they would be on the first free slot."""
    labels = ", ".join(slot.label for slot in slots)
    print(f"{title}: {len(runs)} runs on {counted(len(slots), 'slot')} ({labels}), a dry run")
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
