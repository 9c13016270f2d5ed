"""From an experiment and its options to a list of runs."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.config import Config, load_config
from ragen.errors import ConfigError
from ragen.sweeps.experiments import (
    ALGORITHMS,
    CONFIG_NAME,
    FED_BY,
    GRADIENT_ANALYSIS,
    PROBED,
    SHARED_BY_SWEEPS,
    TRAINED,
    Overrides,
    Sweep,
    check_labels,
    filter_tag,
    probe_name,
    trained_dir,
    trained_name,
    value_label,
)
from ragen.sweeps.run import DEVICES, Run
from ragen.trainer.start import check_own_changes, plan_start

SEED_GAP = 1_000_000
"""Between the training seeds of two runs. A run plays the levels from seed.train on, far fewer than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What all experiments share."""

    model_path: str
    model_name: str
    gpus_per_run: int
    devices: str
    """GPU ids of some slot: what commands are checked with."""
    ray_num_cpus: int
    gpu_memory_utilization: float
    overrides: tuple[str, ...]
    """Trailing key=value: they win."""

    def common(self, *, project: str, name: str, run_dir: Path, steps: int, save_freq: int) -> Overrides:
        return {
            "model_path": quoted(self.model_path),
            "trainer.project_name": project,
            "trainer.experiment_name": name,
            "trainer.default_local_dir": quoted(str(run_dir)),
            "trainer.total_training_steps": str(steps),
            "trainer.save_freq": str(save_freq),
            "trainer.n_gpus_per_node": str(self.gpus_per_run),
            "system.CUDA_VISIBLE_DEVICES": f"'{DEVICES}'",
            "ray_kwargs.ray_init.num_cpus": str(self.ray_num_cpus),
            "actor_rollout_ref.rollout.gpu_memory_utilization": f"{self.gpu_memory_utilization:g}",
        }


def quoted(text: str) -> str:
    """A text as the value of an override."""
    return text if re.fullmatch(r"[\w./~-]+", text) else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def short_name(model_path: str) -> str:
    """What a model is called in names and paths: Qwen/Qwen2.5-3B -> Qwen2.5-3B"""
    return Path(model_path).name


def key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def train_command(own: Overrides, theirs: Sequence[str]) -> tuple[str, ...]:
    """The training command; what the user sets replaces what the experiment sets, and what follows from it."""
    keys = {key_of(override) for override in theirs}
    kept = [
        f"{key}={value}" for key, value in own.items() if key not in keys and not keys.intersection(FED_BY.get(key, ()))
    ]
    return (sys.executable, "-m", "ragen.cli", "train", "--config-name", CONFIG_NAME, *kept, *theirs)


def make_run(
    own: Overrides,
    options: Options,
    *,
    name: str,
    log: Path,
    fields: Mapping[str, str],
    value: str = "",
    seed: int = 1,
    extra: Sequence[str] = (),
) -> tuple[Run, Config]:
    """A run and the configuration its command leads to; mistakes are told here, before anything is started."""
    command = train_command(own, [*options.overrides, *extra])
    config = load_config(CONFIG_NAME, [argument.replace(DEVICES, options.devices) for argument in command[6:]])
    run = Run(
        name=name,
        command=command,
        log=log,
        run_dir=Path(config.trainer.default_local_dir),
        total_steps=config.trainer.total_training_steps,
        value=value,
        seed=seed,
        fields=fields,
    )
    return run, config


Planned = list[tuple[Run, Config]]


def plan_sweep(
    sweep: Sweep,
    values: Sequence[str],
    options: Options,
    *,
    include_zero: bool,
    num_seeds: int,
    steps: int,
    save_freq: int,
) -> Planned:
    """Every value with every seed; all values of the first seed come first."""
    check_labels(values, sweep.value_option)
    for key in map(key_of, options.overrides):
        if key in sweep.varied:
            raise ConfigError(f"{key} is what this sweep varies. Give its values with {sweep.value_option}.")
    folder = f"{sweep.slug}_{options.model_name}"
    tag = filter_tag(include_zero)
    planned: Planned = []
    for seed in range(1, num_seeds + 1):
        for index, value in enumerate(values):
            label = value_label(value)
            name = sweep.name_of(tag, label, options.model_name) + (f"-seed{seed}" if seed > 1 else "")
            own = options.common(
                project=sweep.project,
                name=name,
                run_dir=Path("model_saving") / folder / label / name,
                steps=steps,
                save_freq=save_freq,
            )
            log_dir = Path("logs") / folder / (tag if sweep.has_include_zero else "") / label
            first_seed = planned[index][1].seed.train if seed > 1 else None
            run = make_run(
                own | SHARED_BY_SWEEPS | sweep.overrides_of(value, include_zero),
                options,
                name=name,
                log=log_dir / f"{name}.log",
                fields=sweep.fields_of(value, include_zero),
                value=value,
                seed=seed,
                # Without a fixed seed every run draws its own.
                extra=[] if first_seed is None else [f"seed.train={first_seed + (seed - 1) * SEED_GAP}"],
            )
            planned.append(run)
    return planned


def plan_gradient_analysis(
    options: Options, *, algorithm: str, steps: int, save_freq: int, micro_batch: int, log_prob_micro_batch: int
) -> Planned:
    """One training run that probes its gradient at steps 1, 51, 101, ..."""
    name = trained_name(algorithm, options.model_name)
    own = options.common(
        project="ragen_gradient_analysis",
        name=name,
        run_dir=trained_dir(algorithm, options.model_name),
        steps=steps,
        save_freq=save_freq,
    )
    own |= GRADIENT_ANALYSIS | micro_batches(micro_batch, log_prob_micro_batch) | TRAINED | ALGORITHMS[algorithm]
    log = Path(f"logs/gradient_analysis_sokoban_{options.model_name}") / f"{name}.log"
    return [make_run(own, options, name=name, log=log, fields={"algo": algorithm, "steps": str(steps)})]


def plan_probe(
    options: Options,
    *,
    algorithm: str,
    checkpoint: Path,
    step: int,
    with_val: bool,
    micro_batch: int,
    log_prob_micro_batch: int,
) -> Planned:
    """One probe of the gradient at a saved step."""
    name = probe_name(algorithm, options.model_name, step=step, with_val=with_val)
    own = options.common(
        project="ragen_gradient_analysis_probe",
        name=name,
        run_dir=Path("model_saving/gradient_analysis_probe/sokoban") / algorithm / "filter" / name,
        steps=max(step, 1),
        save_freq=-1,
    )
    own |= GRADIENT_ANALYSIS | micro_batches(micro_batch, log_prob_micro_batch) | PROBED | ALGORITHMS[algorithm]
    own |= {"trainer.resume_from_path": quoted(str(checkpoint)), "trainer.val_before_train": str(with_val)}
    log = Path(f"logs/gradient_analysis_probe_sokoban_{options.model_name}") / f"{name}.log"
    return [make_run(own, options, name=name, log=log, fields={"algo": algorithm, "checkpoint_step": str(step)})]


def micro_batches(update: int, log_prob: int) -> Overrides:
    return {
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": str(update),
        "critic.ppo_micro_batch_size_per_gpu": str(update),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": str(log_prob),
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": str(log_prob),
    }


# --- checks before the first start


def check_folders(planned: Planned) -> None:
    """No two runs share a directory, and none continues what another command has trained."""
    owners: dict[Path, str] = {}
    for run, config in planned:
        if other := owners.get(run.run_dir):
            raise ConfigError(
                f"{other} and {run.name} would both write into {run.run_dir}. Leave trainer.default_local_dir out."
            )
        owners[run.run_dir] = run.name
        check_own_changes(config)


def check_ready(planned: Planned) -> None:
    """What the runs need is there: trackers, model, a trainer that can do it, checkpoints one can go on from."""
    for _, config in planned:
        with contextlib.redirect_stdout(io.StringIO()):  # that a run has nothing left to do is no mistake
            plan_start(config)
