"""From arms and seeds to runs. A run is named by its own configuration, so that claims with equal arms share it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragen.config import Config, load_config
from ragen.config.quoting import quoted
from ragen.config.seeds import SEED_GAP
from ragen.reproduce.claim import Arm, Budget, Claim, Evidence
from ragen.studies.conditions import Condition, read_curve
from ragen.studies.outcomes import DONE, Outcome
from ragen.sweeps.driving.run import DEVICES, PROGRAM, Run, shell_line
from ragen.sweeps.driving.slots import Slot, ask_nvidia_smi, cut_slots, find_machine, has_cuda
from ragen.tracking.console import counted, duration, markdown_table


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A claim at a budget: the runs that decide it."""

    claim: Claim
    budget: Budget
    runs: Mapping[str, Sequence[Run]]
    """Arm -> its runs, by seed; other claims may have the same ones."""

    def complete_seeds(self, outcomes: Mapping[str, Outcome]) -> set[int]:
        """Those that have ended in every arm."""
        ended = [{run.seed for run in runs if outcomes[run.name].status in DONE} for runs in self.runs.values()]
        return set.intersection(*ended)

    def evidence(self, outcomes: Mapping[str, Outcome]) -> Evidence:
        """Of the seeds that have ended in every arm; each has validation levels of its own."""
        seeds = self.complete_seeds(outcomes)
        arms = {}
        for name, runs in self.runs.items():
            curves = [read_curve(run, outcomes[run.name]) for run in runs if run.seed in seeds]
            arms[name] = Condition(value=name, curves=curves, share_levels=False)
        return Evidence(arms=arms)


def key_of(arm: Arm) -> str:
    """quickstart-1f0c9a3e: the configuration, and a hash of all that differs from it."""
    words = [arm.config_name, *(f"{key}={value}" for key, value in sorted(arm.overrides.items()))]
    words += [f"sft {key}={value}" for key, value in sorted(arm.demonstrations.items())]
    return f"{arm.config_name}-{hashlib.sha256(chr(10).join(words).encode()).hexdigest()[:8]}"


def plan_jobs(
    claims: Sequence[Claim], budget: Budget, *, num_seeds: int, out: Path, changes: Mapping[str, str]
) -> list[Job]:
    """The runs of every claim; `changes` are overrides of every arm. Equal arms give equal runs."""
    made: dict[str, list[Run]] = {}

    def runs_of(arm: Arm) -> list[Run]:
        arm = arm.but(changes)
        if (key := key_of(arm)) not in made:
            made[key] = make_runs(arm, key, num_seeds=num_seeds, out=out)
        return made[key]

    return [
        Job(claim=claim, budget=budget, runs={name: runs_of(arm) for name, arm in claim.arms[budget].items()})
        for claim in claims
    ]


def distinct_runs(jobs: Sequence[Job]) -> list[Run]:
    """Each run once; all first seeds before the second ones, so that a study that is cut short has whole seeds."""
    runs = {run.name: run for job in jobs for runs in job.runs.values() for run in runs}
    return sorted(runs.values(), key=lambda run: run.seed)


def make_runs(arm: Arm, key: str, *, num_seeds: int, out: Path) -> list[Run]:
    """Seeds 1, 2, ...: levels, noise and validation levels of their own, the same ones in every arm."""
    words = [f"{name}={value}" for name, value in arm.overrides.items()]
    config = load_config(arm.config_name, words)  # a mistake is reported here, before anything is started
    runs = []
    for seed in range(1, num_seeds + 1):
        name = f"{key}-{seed}"
        folder = out / "runs" / name
        own = {
            "seed.train": str(SEED_GAP * seed),
            "seed.val": str(SEED_GAP * seed - 10_000),
            "trainer.project_name": "reproduce",
            "trainer.experiment_name": name,
            "trainer.default_local_dir": quoted(str(folder)),
            "system.CUDA_VISIBLE_DEVICES": f"'{DEVICES}'",
        }
        train = [*PROGRAM, "train", "--config-name", arm.config_name, *words]
        train += [f"{each}={value}" for each, value in own.items()]
        command = tuple(train)
        if arm.demonstrations:
            command = ("bash", "-c", taught(arm, train, folder, seed))
        runs.append(
            Run(
                name=name,
                command=command,
                log=out / "logs" / f"{name}.log",
                run_dir=folder,
                total_steps=config.trainer.total_training_steps,
                value=key,
                seed=seed,
                config=None if arm.demonstrations else of_seed(config, seed, name, folder),
            )
        )
    return runs


def taught(arm: Arm, train: Sequence[str], folder: Path, seed: int) -> str:
    """Supervised training on the solver's demonstrations, then the run from its model."""
    teach = [*PROGRAM, "sft", "--config-name", arm.config_name, "trainer.logger=[]"]
    teach += [f"{key}={value}" for key, value in arm.demonstrations.items()]
    model = folder.with_name(f"{folder.name}.sft")
    teach += [f"sft.output_dir={model}", f"sft.seed={SEED_GAP * seed + 500_000}"]
    return f"{shell_line(teach)} && {shell_line([*train, f'model_path={model}/merged_model'])}"


def of_seed(config: Config, seed: int, name: str, folder: Path) -> Config:
    """The configuration of an arm as a run has it; loading each again would take longer than all checks."""
    trainer = replace(config.trainer, experiment_name=name, default_local_dir=str(folder))
    seeds = replace(config.seed, train=SEED_GAP * seed, val=SEED_GAP * seed - 10_000)
    return replace(config, trainer=trainer, seed=seeds)


def find_slots(budget: Budget, *, num_cpu_slots: int, runs_per_gpu: int) -> list[Slot]:
    """Embedded models are trained on the CPU, a core each; the others on the GPUs there are, or not at all."""
    if budget == "minutes":
        return [Slot(devices="", size=1, label="1xCPU")] * num_cpu_slots
    if not (ask_nvidia_smi() or has_cuda()):
        return []
    machine = find_machine(None)
    return [] if machine.is_cpu else cut_slots(machine, 1, runs_per_gpu)


def plan_table(jobs: Sequence[Job], budget: Budget) -> str:
    """A row for each distinct arm: its runs, what is left of them, and which claims read them."""
    rows: dict[str, list[str]] = {}
    users: dict[str, list[str]] = {}
    for job in jobs:
        for name, runs in job.runs.items():
            key, arm = runs[0].value, job.claim.arms[budget][name]
            left = sum(not run.is_done() for run in runs)
            rows[key] = [key, f"{left} of {len(runs)}", str(runs[0].total_steps), duration(arm.seconds)]
            users.setdefault(key, []).append(f"{job.claim.name} ({name})")
    columns = ("runs", "to do", "steps", "about, each", "read by")
    return markdown_table(columns, [[*row, ", ".join(users[key])] for key, row in rows.items()])


def plan_text(jobs: Sequence[Job], budget: Budget, slots: Sequence[Slot]) -> str:
    """What lies ahead: runs, steps, time and disk."""
    runs = distinct_runs(jobs)
    left = {run.name for run in runs if not run.is_done()}
    arms = {run.name: arm for job in jobs for name, arm in job.claim.arms[budget].items() for run in job.runs[name]}
    todo = [run for run in runs if run.name in left]
    steps, total = sum(run.total_steps for run in todo), sum(arms[run.name].seconds for run in todo)
    gigabytes = sum(arms[run.name].gigabytes for run in todo)
    on = f" on {counted(len(slots), 'slot')} "
    here = f"{duration(total / len(slots))}{on}({slots[0].label})" if slots else "no slot here"
    return (
        f"{len(todo)} of {len(runs)} runs to do, {steps} steps; about {duration(total)} one after another, {here}; "
        f"about {gigabytes:.1f} GB of disk."
    )
