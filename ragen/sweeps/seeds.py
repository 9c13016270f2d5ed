"""`trainer.seeds=N`: one configuration with several seeds, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ragen.config import Config, load_config
from ragen.config.quoting import quoted
from ragen.config.seeds import repeat_seed
from ragen.errors import NOTHING_LEARNED
from ragen.studies.conditions import Condition, collapse_note, interval_name, read_conditions
from ragen.sweeps.compare import arms_table
from ragen.sweeps.driving.driver import drive, exit_code
from ragen.sweeps.driving.run import DEVICES, PROGRAM, Run, shell_line
from ragen.sweeps.driving.slots import Slot, cut_slots, find_machine
from ragen.sweeps.plan import key_of
from ragen.tracking.rundir import read_status

OWN_KEYS = ("trainer.seeds", "trainer.runs_per_gpu")
"""What a run of its own must not read again."""


def train_seeds(config: Config, config_name: str, config_dir: str | None, overrides: Sequence[str]) -> int:
    """Train every seed, print the table of each and of all; the exit code."""
    slots = cut_slots(find_machine(None), config.trainer.n_gpus_per_node, config.trainer.runs_per_gpu)
    runs = plan_seeds(config, config_name, config_dir, overrides, slots[0])
    outcomes = drive(runs, slots, title=f"{config.trainer.experiment_name}, {len(runs)} seeds") or {}
    # As in `ragen compare`, the seed of a run is its seed.train here.
    arms = [replace(run, seed=seed) for run in runs if run.config and (seed := run.config.seed.train) is not None]
    (condition,) = read_conditions(arms, outcomes)
    if condition.counted:
        each = [Condition(value=curve.run.name, curves=[curve]) for curve in condition.curves]
        table = arms_table([*each, replace(condition, value="mean")])
        print(f"\n{table}\n\nMean success of the last validation [{interval_name([*each, condition])}].")
    if note := collapse_note([condition]):
        print(f"A run that stopped early collapsed. Means are those of the other runs alone. {note}")
    print(f"Draw them: {shell_line(['ragen', 'plot', *(str(run.run_dir) for run in runs)])}")
    # To a list of runs an early stop is a result. These are one configuration, which learned nothing if no seed did.
    is_lost = all(run.state() and read_status(run.run_dir).get("exit_code") == NOTHING_LEARNED for run in runs)
    return NOTHING_LEARNED if is_lost else exit_code(outcomes)


def plan_seeds(
    config: Config, config_name: str, config_dir: str | None, overrides: Sequence[str], slot: Slot
) -> list[Run]:
    """The plain run, then `-seed2`, `-seed3`, ... with training seeds of their own, on the same validation levels."""
    kept = [word for word in overrides if key_of(word) not in OWN_KEYS]
    folder, name = Path(config.trainer.default_local_dir), config.trainer.experiment_name
    where = ["--config-dir", config_dir] if config_dir else []
    runs = []
    for seed in range(1, config.trainer.seeds + 1):
        end = f"-seed{seed}" if seed > 1 else ""
        own = [
            "trainer.seeds=1",
            f"trainer.experiment_name={quoted(name + end)}",
            f"trainer.default_local_dir={quoted(str(folder) + end)}",
            f"seed.train={repeat_seed(config.seed.train, seed, 'trainer.seeds')}",
            f"system.CUDA_VISIBLE_DEVICES='{DEVICES}'",
        ]
        words = [*kept, *own]
        runs.append(
            Run(
                name=name + end,
                command=(*PROGRAM, "train", "--config-name", config_name, *where, *words),
                log=Path("logs") / config.trainer.project_name / f"{name}{end}.log",
                run_dir=Path(str(folder) + end),
                total_steps=config.trainer.total_training_steps,
                value=name,
                seed=seed,
                config=load_config(config_name, [word.replace(DEVICES, slot.devices) for word in words], config_dir),
            )
        )
    return runs
