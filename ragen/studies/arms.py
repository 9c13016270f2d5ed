"""Run directories as arms of a comparison: the runs of an arm are its seeds.

Tested in tests/sweeps/test_compare.py and tests/plotting/test_scaling.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.errors import RagenError
from ragen.files import read_yaml, value_at
from ragen.studies.conditions import Condition, Curve, ListedRun, read_curve, share_levels
from ragen.studies.outcomes import STATUS_OF_STATE, Outcome
from ragen.tracking.rundir import read_status
from ragen.tracking.validation import NO_VALIDATION


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmRun(ListedRun):
    """A run of an arm: `value` is the arm's name, `seed` its seed.train, by which runs are paired."""

    val_seed: str
    """Its seed.val: which levels it was validated on."""


def make_arm(name: str, curves: Sequence[Curve]) -> Condition:
    runs = [curve.run for curve in curves]
    seeds = [run.seed for run in runs]
    if twice := next((seed for seed in seeds if seeds.count(seed) > 1), None):
        same = " and ".join(str(run.run_dir) for run in runs if run.seed == twice)
        raise RagenError(f"{name}: {same} have the same seed.train={twice}. An arm has one run of each seed.")
    val_seeds = [run.val_seed for run in runs if isinstance(run, ArmRun)]
    return Condition(value=name, curves=list(curves), share_levels=share_levels(val_seeds))


def read_arm_run(name: str, folder: Path) -> Curve:
    """The validations of a run; one without any is an error."""
    config_file = folder / "config.yaml"
    config = read_yaml(config_file)
    run = ArmRun(
        name=str(value_at(config, "trainer.experiment_name", config_file)),
        value=name,
        seed=int(value_at(config, "seed.train", config_file)),
        run_dir=folder,
        val_seed=str(value_at(config, "seed.val", config_file)),
    )
    status = read_status(folder)
    ended = STATUS_OF_STATE.get(status["state"], "missing")
    curve = read_curve(run, Outcome(status=ended, early_stop=status.get("early_stop"), cause=status.get("cause", "")))
    if not curve.steps:
        raise RagenError(f"{folder} {NO_VALIDATION}")
    return curve
