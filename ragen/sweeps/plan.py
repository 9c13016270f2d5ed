"""From an experiment and its options to a list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.config import load_config
from ragen.config.quoting import quoted
from ragen.config.seeds import repeat_seed
from ragen.errors import ConfigError
from ragen.sweeps.driving.run import DEVICES, PROGRAM, Run
from ragen.sweeps.driving.slots import Slot
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
from ragen.trainer.checkpoints.checkpoint import step_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What was typed behind `ragen sweep NAME`; options that an experiment does not have keep their default."""

    model_path: str
    model_name: str
    ray_num_cpus: int
    gpu_memory_utilization: float
    dry_run: bool
    skip_done: bool
    overrides: Sequence[str]
    """Trailing key=value: they win."""
    gpus: tuple[str, ...] | None
    """Ids of the GPUs to use; None takes all there are."""
    gpus_per_exp: int | None = None
    """GPUs of each run; None takes all for one run."""
    runs_per_gpu: int = 1
    """Runs that share a GPU, or the CPU."""
    ray: str | None = None
    """Address of the Ray cluster that runs everything."""
    steps: int = 1
    save_freq: int = -1
    values: tuple[str, ...] = ()
    rollout_filter_include_zero: bool = False
    seeds: int = 1
    algo: str = ""
    ppo_micro_batch_size_per_gpu: int = 0
    log_prob_micro_batch_size_per_gpu: int = 0
    checkpoint_step: int = 0
    checkpoint_root: str | None = None
    resume_from_path: str | None = None
    with_val: bool = False


def key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def train_command(own: Overrides, theirs: Sequence[str]) -> tuple[str, ...]:
    """The training command; what the user sets replaces what the experiment sets, and what follows from it."""
    keys = {key_of(override) for override in theirs}
    kept = [
        f"{key}={value}" for key, value in own.items() if key not in keys and not keys.intersection(FED_BY.get(key, ()))
    ]
    return (*PROGRAM, "train", "--config-name", CONFIG_NAME, *kept, *theirs)


def make_run(
    name: str,
    own: Overrides,
    options: Options,
    slot: Slot,
    *,
    project: str,
    run_dir: Path,
    log_dir: Path,
    fields: Mapping[str, str],
    value: str = "",
    seed: int = 1,
    extra: Sequence[str] = (),
) -> Run:
    """A run with the configuration its command leads to; mistakes are reported here, before anything is started."""
    if "model_path" in map(key_of, options.overrides):
        raise ConfigError("model_path would not enter the names of the runs. Use --model-path and --model-name.")
    # What each run takes of the memory is its part of what all that share the GPU may take.
    memory_share = options.gpu_memory_utilization / options.runs_per_gpu
    common = {
        "model_path": quoted(options.model_path),
        "trainer.project_name": project,
        "trainer.experiment_name": name,
        "trainer.default_local_dir": quoted(str(run_dir)),
        "trainer.total_training_steps": str(options.steps),
        "trainer.save_freq": str(options.save_freq),
        "trainer.n_gpus_per_node": str(slot.size),
        "system.CUDA_VISIBLE_DEVICES": f"'{DEVICES}'",
        "ray_kwargs.ray_init.num_cpus": str(options.ray_num_cpus),
        "actor_rollout_ref.rollout.gpu_memory_utilization": f"{memory_share:g}",
    }
    command = train_command(common | own, [*options.overrides, *extra])
    config = load_config(CONFIG_NAME, [argument.replace(DEVICES, slot.devices) for argument in command[6:]])
    return Run(
        name=name,
        command=command,
        log=log_dir / f"{name}.log",
        run_dir=Path(config.trainer.default_local_dir),
        total_steps=config.trainer.total_training_steps,
        value=value,
        seed=seed,
        fields=fields,
        config=config,
    )


def plan_sweep(sweep: Sweep, options: Options, slot: Slot) -> list[Run]:
    """Every value with every seed; all values of the first seed come first."""
    check_labels(options.values, sweep.value_option)
    for key in map(key_of, options.overrides):
        if key in sweep.varied:
            raise ConfigError(f"{key} is what this sweep varies. Give its values with {sweep.value_option}.")
    folder = f"{sweep.slug}_{options.model_name}"
    tag = filter_tag(options.rollout_filter_include_zero)
    tag_folder = tag if "{tag}" in sweep.name else ""  # where the sweep has --rollout_filter_include_zero
    first_seeds: dict[str, int | None] = {}
    runs = []
    for seed in range(1, options.seeds + 1):
        for value in options.values:
            label = value_label(value)
            end = f"-seed{seed}" if seed > 1 else ""
            name = f"{sweep.name.format(tag=tag, label=label)}-{options.model_name}{end}"
            point = sweep.point_of(value, options.rollout_filter_include_zero)
            first_seed = first_seeds.get(value)
            run = make_run(
                name,
                SHARED_BY_SWEEPS | point.overrides,
                options,
                slot,
                project=f"ragen_release_{sweep.slug}",
                run_dir=Path("model_saving") / folder / label / name,
                log_dir=Path("logs") / folder / tag_folder / label,
                fields=point.fields,
                value=value,
                seed=seed,
                # Without a fixed seed every run draws its own.
                extra=[] if first_seed is None else [f"seed.train={repeat_seed(first_seed, seed, '--seeds')}"],
            )
            assert run.config is not None
            first_seeds.setdefault(value, run.config.seed.train)
            runs.append(run)
    return runs


def plan_gradient_analysis(options: Options, slot: Slot) -> Run:
    """One training run that probes its gradient at steps 1, 51, 101, ..."""
    return make_run(
        trained_name(options.algo, options.model_name),
        gradient_overrides(options, TRAINED),
        options,
        slot,
        project="ragen_gradient_analysis",
        run_dir=trained_dir(options.algo, options.model_name),
        log_dir=Path(f"logs/gradient_analysis_sokoban_{options.model_name}"),
        fields={"algo": options.algo, "steps": str(options.steps)},
    )


def plan_probe(options: Options, slot: Slot, checkpoint: Path) -> Run:
    """One probe of the gradient at a saved step."""
    step = step_of(checkpoint)
    name = probe_name(options.algo, options.model_name, step=step, with_val=options.with_val)
    own = {
        "trainer.total_training_steps": str(max(step, 1)),
        "trainer.resume_from_path": quoted(str(checkpoint)),
        "trainer.val_before_train": str(options.with_val),
    }
    return make_run(
        name,
        gradient_overrides(options, PROBED) | own,
        options,
        slot,
        project="ragen_gradient_analysis_probe",
        run_dir=Path("model_saving/gradient_analysis_probe/sokoban") / options.algo / "filter" / name,
        log_dir=Path(f"logs/gradient_analysis_probe_sokoban_{options.model_name}"),
        fields={"algo": options.algo, "checkpoint_step": str(step)},
    )


def gradient_overrides(options: Options, kind: Overrides) -> Overrides:
    update, log_prob = options.ppo_micro_batch_size_per_gpu, options.log_prob_micro_batch_size_per_gpu
    micro_batches = {
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": str(update),
        "critic.ppo_micro_batch_size_per_gpu": str(update),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": str(log_prob),
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": str(log_prob),
    }
    return GRADIENT_ANALYSIS | micro_batches | kind | ALGORITHMS[options.algo]
