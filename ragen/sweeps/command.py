"""What `ragen sweep` does: the experiments of scripts/runs, planned, run side by side and summed up."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from ragen.errors import ConfigError
from ragen.sweeps import report
from ragen.sweeps.backend import Backend, LocalBackend
from ragen.sweeps.experiments import SWEEPS, trained_dir
from ragen.sweeps.plan import (
    Options,
    check_folders,
    check_ready,
    key_of,
    plan_gradient_analysis,
    plan_probe,
    plan_sweep,
)
from ragen.sweeps.results import SummaryLog, outcome_before, write_result
from ragen.sweeps.run import Outcome, Run, shell_line
from ragen.sweeps.scheduler import Scheduler
from ragen.sweeps.slots import Machine, Slot, cut_slots, find_machine
from ragen.sweeps.view import make_view
from ragen.trainer.checkpoint import LATEST, step_of


def run_sweep(word: str, args: argparse.Namespace, argv: Sequence[str]) -> int:
    """A sweep with its summary log and its report."""
    sweep = SWEEPS[word]
    slots = find_slots(args)
    include_zero = getattr(args, "include_zero", False)
    planned = plan_sweep(
        sweep,
        args.values,
        options_of(args, slots),
        include_zero=include_zero,
        num_seeds=args.seeds,
        steps=args.steps,
        save_freq=args.save_freq,
    )
    check_folders(planned)
    runs = [run for run, _ in planned]
    done = {run.name: outcome_before(run) for run in runs if args.skip_done and run.is_done()}
    title = f"{sweep.title}, {args.model_name}"
    if args.dry_run:
        print_plan(title, runs, slots, done)
        return 0
    report.check_extra()
    check_ready([(run, config) for run, config in planned if run.name not in done])

    backend = make_backend(args, slots)
    stem = Path("logs") / f"{sweep.slug}_{args.model_name}"
    summary_path = stem.with_name(f"{stem.name}.log")
    summary = SummaryLog(summary_path, header_lines(title, args, slots))
    for run in runs:
        if run.name in done:
            summary.add(run, done[run.name])

    def on_end(run: Run, outcome: Outcome) -> None:
        write_result(run, outcome)
        summary.add(run, outcome)

    scheduler = Scheduler(runs, backend, view=make_view(), on_end=on_end)
    scheduler.skip(done)
    ended_by = scheduler.work()
    outcomes = {state.run.name: state.outcome for state in scheduler.states}
    by_value = sorted(runs, key=lambda run: args.values.index(run.value))
    summary.finish(outcomes, by_value)
    print(f"Summary: {summary_path}")
    if ended_by is not None:
        return interrupted(word, argv, ended_by)
    axis_name = sweep.varied[0].rpartition(".")[2]
    files = report.write_report(
        stem, title=title, axis_name=axis_name, runs=by_value, outcomes=outcomes, summary=summary_path
    )
    print(f"Report: {', '.join(map(str, files))}")
    return exit_code(list(outcomes.values()))


def run_helper(word: str, args: argparse.Namespace, argv: Sequence[str]) -> int:
    """One run on all GPUs."""
    args.gpus_per_exp, args.ray = None, None
    slots = find_slots(args)
    options = options_of(args, slots)
    shared = {
        "algorithm": args.algo,
        "micro_batch": args.ppo_micro_batch_size_per_gpu,
        "log_prob_micro_batch": args.log_prob_micro_batch_size_per_gpu,
    }
    if word == "grad-analysis":
        planned = plan_gradient_analysis(options, steps=args.steps, save_freq=args.save_freq, **shared)
    else:
        folder = checkpoint_folder(args)
        planned = plan_probe(options, checkpoint=folder, step=step_of(folder), with_val=args.with_val, **shared)
    check_folders(planned)
    [run] = [run for run, _ in planned]
    done = {run.name: outcome_before(run)} if args.skip_done and run.is_done() else {}
    if args.dry_run:
        print_plan(run.name, [run], slots, done)
        return 0
    check_ready([(run, config) for run, config in planned if run.name not in done])
    scheduler = Scheduler([run], make_backend(args, slots), view=make_view(), on_end=write_result)
    scheduler.skip(done)
    before = moved_aside(run)
    ended_by = scheduler.work()
    for folder in sorted(moved_aside(run) - before):
        print(f"Moved what another run left in {run.run_dir} to {folder}.")
    print(f"Log: {run.log}\nRun directory: {run.run_dir}")
    if ended_by is not None:
        return interrupted(word, argv, ended_by)
    return exit_code([state.outcome for state in scheduler.states])


def moved_aside(run: Run) -> set[Path]:
    """Folders with what former runs left in the directory of this one; moving is said in its log only."""
    return set(run.run_dir.parent.glob(f"{escape(run.run_dir.name)}.*"))


def checkpoint_folder(args: argparse.Namespace) -> Path:
    """The global_step_<N> that a probe reads; in a dry run it may be still to come."""
    if args.resume_from_path is not None:
        folder = Path(args.resume_from_path)
    else:
        root = Path(args.checkpoint_root or trained_dir(args.algo, args.model_name))
        folder = root / f"global_step_{args.checkpoint_step}"
    step_of(folder)  # says what is wrong with another name
    if not folder.is_dir():
        there = sorted((path.name for path in folder.parent.glob("global_step_*")), key=lambda name: (len(name), name))
        hint = f"There are: {', '.join(there)}." if there else "Train first: ragen sweep grad-analysis."
        message = f"The checkpoint {folder} does not exist. {hint}"
        if not args.dry_run:
            raise ConfigError(f"{message} Choose with --checkpoint-step, --checkpoint-root or --resume-from-path.")
        print(f"note: {message}")
    return folder


def find_slots(args: argparse.Namespace) -> list[Slot]:
    """The slots of this machine; with a Ray cluster, one that stands for whatever Ray chooses."""
    if args.ray is not None and args.ray != "local":
        if args.gpus is not None:
            raise ConfigError(f"--gpus names GPUs of this machine, --ray {args.ray} lets Ray choose. Leave one out.")
        size = args.gpus_per_exp
        return [Slot(devices=",".join(map(str, range(size))), size=size, label=f"{size}xRay")]
    machine: Machine = find_machine(args.gpus)
    if machine.note:
        print(machine.note)
    return cut_slots(machine, args.gpus_per_exp or len(machine.gpus) or 1)


def options_of(args: argparse.Namespace, slots: Sequence[Slot]) -> Options:
    for key in map(key_of, args.overrides):
        if key == "model_path":
            raise ConfigError("model_path would not enter the names of the runs. Use --model-path and --model-name.")
    return Options(
        model_path=args.model_path,
        model_name=args.model_name,
        gpus_per_run=slots[0].size,
        devices=slots[0].devices,
        ray_num_cpus=args.ray_num_cpus,
        gpu_memory_utilization=args.gpu_memory_utilization,
        overrides=tuple(args.overrides),
    )


def make_backend(args: argparse.Namespace, slots: Sequence[Slot]) -> Backend:
    if args.ray is None:
        return LocalBackend(slots)
    from ragen.sweeps.ray_backend import RayBackend

    return RayBackend(args.ray, slots)


def header_lines(title: str, args: argparse.Namespace, slots: Sequence[Slot]) -> list[str]:
    gpus = ",".join(slot.devices for slot in slots if slot.devices) or "none (CPU)"
    groups = " ; ".join(f"{slot.devices or 'CPU'} ({slot.label})" for slot in slots)
    if args.ray is not None:
        gpus, groups = f"by Ray ({args.ray})", f"{slots[0].size} per run"
    return [
        f"=== {title}, {time.strftime('%Y-%m-%d %H:%M:%S')} ===",
        f"values: {','.join(args.values)} | seeds: {args.seeds} | steps: {args.steps} | GPUs: {gpus}",
        f"groups: {groups} | gpu_memory_utilization: {args.gpu_memory_utilization:g} | "
        f"ray_num_cpus: {args.ray_num_cpus} | save_freq: {args.save_freq}",
    ]


def print_plan(title: str, runs: Sequence[Run], slots: Sequence[Slot], done: dict[str, Outcome]) -> None:
    """What would be run, in the order of the queue, with the commands as they would be on the first free slot."""
    print(f"{title}: {len(runs)} runs on {len(slots)} slots ({', '.join(slot.label for slot in slots)}), a dry run")
    waiting = [run for run in runs if run.name not in done]
    for run in runs:
        slot = slots[waiting.index(run) % len(slots)] if run in waiting else slots[0]
        resumes = (run.run_dir / LATEST).exists()
        what = (
            "done before, skipped" if run.name in done else "goes on from its newest checkpoint" if resumes else "new"
        )
        print(f"\n# {run.name} ({what})\n# log {run.log}, run directory {run.run_dir}")
        if run.name not in done:
            print(shell_line(["env", f"CUDA_VISIBLE_DEVICES={slot.devices}", *run.command_on(slot.devices)]))


def interrupted(word: str, argv: Sequence[str], number: int) -> int:
    again = [*argv, *([] if "--skip-done" in argv else ["--skip-done"])]
    print(f"Interrupted; no run is left behind. Go on with: ragen sweep {word} {shell_line(again)}", file=sys.stderr)
    return 128 + number


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """An early stop is a result; a failure is not."""
    return 1 if any(outcome.status in ("fail", "missing") for outcome in outcomes) else 0
