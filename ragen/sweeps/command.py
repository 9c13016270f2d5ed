"""What `ragen sweep` does: the experiments of scripts/runs, planned, run side by side and summed up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from glob import escape
from pathlib import Path

from ragen.errors import ConfigError
from ragen.sweeps import report
from ragen.sweeps.driving.driver import drive, exit_code
from ragen.sweeps.driving.run import Run
from ragen.sweeps.driving.slots import Slot, cut_slots, find_machine
from ragen.sweeps.experiments import SWEEPS, trained_dir
from ragen.sweeps.plan import Options, plan_gradient_analysis, plan_probe, plan_sweep
from ragen.trainer.checkpoints.checkpoint import step_of


def run_sweep(name: str, options: Options, *, resume_with: str) -> int:
    """A sweep with its summary log and its report; the exit code."""
    sweep, slots = SWEEPS[name], find_slots(options)
    runs = plan_sweep(sweep, options, slots[0])
    title = f"{sweep.title}, {options.model_name}"
    if not options.dry_run:
        report.check_extra()
    stem = Path("logs") / f"{sweep.slug}_{options.model_name}"
    summary = stem.with_name(f"{stem.name}.log")
    outcomes = drive(
        runs,
        slots,
        title=title,
        header=header_lines(title, options, slots),
        summary=summary,
        ray=options.ray,
        is_dry=options.dry_run,
        skip_done=options.skip_done,
        resume_with=resume_with,
    )
    if outcomes is None:
        return 0
    axis_name = sweep.varied[0].rpartition(".")[2]
    files = report.write_report(
        stem,
        title=title,
        axis_name=axis_name,
        runs=runs,
        outcomes=outcomes,
        summary=summary,
        baseline=sweep.baseline,
    )
    print(f"Report: {', '.join(map(str, files))}")
    return exit_code(outcomes)


def run_helper(name: str, options: Options, *, resume_with: str) -> int:
    """One run on all GPUs; the exit code."""
    slots = find_slots(options)
    if name == "grad-analysis":
        run = plan_gradient_analysis(options, slots[0])
    else:
        run = plan_probe(options, slots[0], checkpoint_folder(options))
    before = moved_aside(run)
    outcomes = drive(
        [run],
        slots,
        title=run.name,
        is_dry=options.dry_run,
        skip_done=options.skip_done,
        resume_with=resume_with,
    )
    if outcomes is None:
        return 0
    for folder in sorted(moved_aside(run) - before):
        print(f"Moved what an earlier run left in {run.run_dir} to {folder}.")
    print(f"Log: {run.log}\nRun directory: {run.run_dir}")
    return exit_code(outcomes)


def moved_aside(run: Run) -> set[Path]:
    """Folders with what earlier runs left in the directory of this one; that they were moved stands in its log only."""
    return set(run.run_dir.parent.glob(f"{escape(run.run_dir.name)}.*"))


def checkpoint_folder(options: Options) -> Path:
    """The global_step_<N> that a probe reads; in a dry run it need not exist yet."""
    root = Path(options.checkpoint_root or trained_dir(options.algo, options.model_name))
    folder = Path(options.resume_from_path or root / f"global_step_{options.checkpoint_step}")
    step_of(folder)  # says what is wrong with another name
    if not folder.is_dir():
        names = sorted((path.name for path in folder.parent.glob("global_step_*")), key=lambda name: (len(name), name))
        hint = f"There are: {', '.join(names)}." if names else "Train first: ragen sweep grad-analysis."
        message = f"The checkpoint {folder} does not exist. {hint}"
        if not options.dry_run:
            raise ConfigError(f"{message} Choose with --checkpoint-step, --checkpoint-root or --resume-from-path.")
        print(f"note: {message}")
    return folder


def find_slots(options: Options) -> list[Slot]:
    """The slots of this machine; with a Ray cluster, one that stands for whatever Ray chooses."""
    size = options.gpus_per_exp
    if options.ray not in (None, "local"):
        assert size is not None, "--gpus-per-exp has a default"
        if options.gpus is not None:
            raise ConfigError(f"--gpus names GPUs of this machine, --ray {options.ray} lets Ray choose. Leave one out.")
        return [Slot(devices=",".join(map(str, range(size))), size=size, label=f"{size}xRay")]
    machine = find_machine(options.gpus)
    return cut_slots(machine, size or len(machine.gpus) or 1, options.runs_per_gpu)


def header_lines(title: str, options: Options, slots: Sequence[Slot]) -> list[str]:
    gpus = ",".join(slot.devices for slot in slots if slot.devices) or "none (CPU)"
    groups = " ; ".join(f"{slot.devices or 'CPU'} ({slot.label})" for slot in slots)
    if options.ray is not None:
        gpus, groups = f"by Ray ({options.ray})", f"{slots[0].size} per run"
    return [
        f"=== {title}, {time.strftime('%Y-%m-%d %H:%M:%S')} ===",
        f"values: {','.join(options.values)} | seeds: {options.seeds} | steps: {options.steps} | GPUs: {gpus}",
        f"groups: {groups} | gpu_memory_utilization: {options.gpu_memory_utilization:g} | "
        f"ray_num_cpus: {options.ray_num_cpus} | save_freq: {options.save_freq}",
    ]
