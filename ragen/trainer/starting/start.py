"""Where a run starts: from scratch, from a checkpoint, or not at all. Known before torch is loaded.

Everything that can be wrong with a configuration or a checkpoint folder is reported here, at once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.config.schema import Config
from ragen.config.seeds import check_held_out
from ragen.config.validate import env_sets
from ragen.engine.registry import ENGINES
from ragen.env.registry import REGISTRY, check_options
from ragen.errors import ConfigError, MissingExtra, install_command
from ragen.files import check_writable, read_tensor_header
from ragen.models.folder import check_context
from ragen.models.resolve import resolve_model
from ragen.tracking.rundir import read_status
from ragen.trainer.checkpoints.checkpoint import STATE_KINDS, find_resume, is_within, read_state, step_of
from ragen.trainer.checkpoints.checksums import verify
from ragen.trainer.starting.changes import changed_data, changes_since
from ragen.trainer.starting.devices import check_devices, device_notes
from ragen.trainer.starting.own_parts import check_own_parts
from ragen.trainer.starting.packages import check_packages

RULES_OFF = {
    "reward_variance_collapse": "trainer.early_stop.variance_window=0",
    "low_validation_success": "trainer.early_stop.low_success_patience=0",
    "empty_filtered_steps": "actor_rollout_ref.rollout.rollout_filter_empty_stop_steps=0",
}
"""Rule of early stopping -> what switches it off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a run begins with."""

    actor: Path | str
    """The model the policy was or is trained from."""
    critic: Path | str | None
    """The model the critic was or is trained from; None without one."""
    checkpoint: Path | None
    """The folder to continue from; None starts from scratch."""
    state: dict[str, Any] | None
    """The trainer's state in it; None in a checkpoint that holds weights only."""
    train_seed: int | None
    """Where the training levels start; None before it is drawn."""
    notes: tuple[str, ...] = ()
    """What whoever starts the run should know, one message each; the caller prints them."""
    is_over: bool = False
    """Nothing is left to do; the note says why."""

    @property
    def step(self) -> int:
        return step_of(self.checkpoint) if self.checkpoint else 0


def plan_start(config: Config, *, has_tried_environments: bool = False) -> Start:
    """Where to begin, after everything that can be checked now. Nothing is printed or written.

    Environments that others wrote are started and tried, unless the caller has done so: that may take a while.
    """
    trainer = config.trainer
    check_supported(config)
    check_environments(config)
    check_packages(config)
    check_own_parts(config, has_tried_environments=has_tried_environments)
    check_outputs(config)
    env_types = sorted({config.custom_envs[tag].env_type for tag in config.es_manager.train.env_configs.tags})
    checkpoint = find_resume(trainer.resume_mode, trainer.resume_from_path, Path(trainer.default_local_dir))
    state = None
    if checkpoint:
        verify(checkpoint, is_quick=True)
        state = read_state(checkpoint, STATE_KINDS)
    drawn = state["train_seed"] if state else None
    start = Start(
        actor=resolve_model(config.actor_rollout_ref.model.path, env_types=env_types),
        critic=resolve_model(config.critic.model.path, env_types=env_types) if config.uses_critic else None,
        checkpoint=checkpoint,
        state=state,
        train_seed=drawn if config.seed.train is None else config.seed.train,
        notes=(*biased_sampling(config.actor_rollout_ref.rollout), *device_notes(config)),
    )
    check_held_out(config, start.train_seed)
    check_lengths(config, start)
    check_room(config, start)
    if trainer.resume_mode == "auto" and state is None and not trains_nothing(config):
        return start_over(config, start)
    return resume(config, check_checkpoint(config, start)) if checkpoint else start


def biased_sampling(rollout: RolloutConfig) -> Iterator[str]:
    """Cuts of the distribution work, but whoever chose them should know. The temperature is not a cut: log-probs are
    computed with it as well."""
    cuts = [f"top_p={rollout.top_p}"] if rollout.top_p < 1 else []
    cuts += [f"top_k={rollout.top_k}"] if rollout.top_k > 0 else []
    if cuts:
        yield (
            f"warning: actor_rollout_ref.rollout.{' and '.join(cuts)}: replies are drawn from a cut distribution, but "
            "log-probs, ratios and KL are those of the whole one, so the gradient is biased. Use top_p=1 and top_k=-1 "
            "in training."
        )


def trains_nothing(config: Config) -> bool:
    """The run only analyses or validates a checkpoint."""
    return config.trainer.gradient_analysis_only or config.trainer.val_only


def start_over(config: Config, start: Start) -> Start:
    """A run without a checkpoint that training can continue from: nothing to do if it came to its end, else anew."""
    root, steps = Path(config.trainer.default_local_dir), config.trainer.total_training_steps
    if _is_closed(root) and not changes_since(root, config):
        status = read_status(root)
        # Checkpoints of weights only cannot be continued, so a shorter run is another run, too.
        if status["state"] == "early_stopped":
            return _over(start, root, f"ended early at step {status['step']}: {status['early_stop']}", "")
        if status["step"] == steps:
            return _over(start, root, f"is finished: step {steps} of {steps}", "")
    if start.checkpoint is None:
        return start
    note = f"{start.checkpoint} holds weights only, from which training cannot continue: this run starts over."
    return replace(start, checkpoint=None, notes=(*start.notes, note))


def resume(config: Config, start: Start) -> Start:
    """A run from a checkpoint, unless it needs no further step."""
    trainer, root = config.trainer, Path(config.trainer.default_local_dir)
    assert start.checkpoint is not None
    # A run killed between its last checkpoint and its end has still to log that step and to report how it ended.
    if trains_nothing(config) or (is_within(start.checkpoint, root) and not _is_closed(root)):
        return start
    if start.step > trainer.total_training_steps:
        note = (
            f"{start.checkpoint} is past trainer.total_training_steps={trainer.total_training_steps}. Nothing to do; "
            f"set it above {start.step} to continue, or set trainer.resume_mode=disable to start over."
        )
        return replace(start, is_over=True, notes=(note,))
    if start.step == trainer.total_training_steps:
        why = f"is finished: step {start.step} of {trainer.total_training_steps}"
        return _over(start, root, why, "raise trainer.total_training_steps to continue, or ")
    # Whoever names the checkpoint of a run that gave up wants to continue from it.
    if trainer.resume_mode == "auto" and start.state and start.state["stop"]:
        why = f"ended early at step {start.step}: {start.state['stop']}"
        options = f"trainer.resume_mode=resume_path trainer.resume_from_path={start.checkpoint}"
        if rule_off := RULES_OFF.get(start.state["stop"]):
            options += f" {rule_off} (the rule would end it again)"
        return _over(start, root, why, f"to continue all the same set {options}, or ")
    return start


def _over(start: Start, root: Path, why: str, remedy: str) -> Start:
    note = f"{root} {why}. Nothing to do; {remedy}set trainer.resume_mode=disable to start over."
    return replace(start, is_over=True, notes=(note,))


def _is_closed(root: Path) -> bool:
    return (root / "status.json").exists() and read_status(root)["state"] in ("finished", "early_stopped")


def check_lengths(config: Config, start: Start) -> None:
    """Refuse a context that a model has no positions for."""
    for folder in (start.actor, start.critic):
        if folder is not None:
            length = config.actor_rollout_ref.rollout.max_model_len
            check_context(folder, length, "actor_rollout_ref.rollout.max_model_len")


def check_room(config: Config, start: Start) -> None:
    """Refuse a disk without room for one checkpoint."""
    if config.trainer.save_freq > 0:
        folder = Path(config.trainer.default_local_dir)
        check_writable(folder, "trainer.default_local_dir", num_bytes=checkpoint_bytes(config, start))


def checkpoint_bytes(config: Config, start: Start) -> int:
    """The least size of a checkpoint, whatever the format of the files that training begins with.

    Weights and two moments for each are float32, with adapters or without an optimizer there are no moments. On a GPU
    weights are bfloat16, and their float32 copies belong to the optimizer.
    """
    roles = ((start.actor, config.actor_rollout_ref.actor.checkpoint), (start.critic, config.critic.checkpoint))
    num_bytes = 0
    for folder, contents in roles:
        files = folder.glob("model*.safetensors") if isinstance(folder, Path) else ()
        count = sum(prod(tensor.shape) for file in files for tensor in read_tensor_header(file).values())
        has_moments = "optimizer" in contents.save_contents and config.lora.rank == 0
        num_bytes += count * (12 if has_moments else 2)
    return num_bytes


def check_outputs(config: Config) -> None:
    """Refuse folders that cannot be written to; nothing is created yet."""
    for key in ("default_local_dir", "rollout_data_dir", "validation_data_dir"):
        if folder := getattr(config.trainer, key):
            check_writable(Path(folder), f"trainer.{key}")


def check_environments(config: Config) -> None:
    """Refuse options that an environment does not take, of every tag whose type is known here."""
    played = {tag for _, envs in env_sets(config) for tag in envs.env_configs.tags}
    for tag, spec in config.custom_envs.items():
        if tag in played or spec.env_type in REGISTRY:  # a table may list types that others register
            check_options(tag, spec.env_type, spec.env_config)


def check_supported(config: Config) -> None:
    """Refuse, by name, what the configuration can express and the trainer cannot do."""
    rollout = config.actor_rollout_ref.rollout
    key, engine = f"actor_rollout_ref.rollout.name={rollout.name}", ENGINES[rollout.name]
    if not engine.can_train:
        others = " or ".join(name for name, kind in ENGINES.items() if kind.can_train)
        raise ConfigError(f"{key}: that engine has no log-probs of tokens to train on. Use {others}.")
    if engine.package and importlib.util.find_spec(engine.package) is None:
        way = f"Run: {install_command(engine.package)}, or use actor_rollout_ref.rollout.name=native"
        raise MissingExtra(f"{key} needs the package {engine.package}, which is not installed. {way}")
    if config.trainer.n_gpus_per_node % config.ranks_per_engine:
        raise ConfigError(
            f"actor_rollout_ref.rollout.tensor_model_parallel_size is {config.ranks_per_engine}, which does not divide "
            f"trainer.n_gpus_per_node={config.trainer.n_gpus_per_node}: an engine is not shared between "
            "machines here. Choose a divisor."
        )
    check_devices(config)
    if not rollout.do_sample:
        raise ConfigError("actor_rollout_ref.rollout.do_sample=False: greedy replies do not vary. Set it to True.")


def check_checkpoint(config: Config, start: Start) -> Start:
    """Refuse to continue from a checkpoint that cannot be continued from; what is accepted is noted."""
    checkpoint, state = start.checkpoint, start.state
    assert checkpoint is not None
    way_out = "Give the run another trainer.experiment_name, or set trainer.resume_mode=disable to start over."
    if state is None and not trains_nothing(config):
        check_probe(config, start)
    if config.uses_critic and not trains_nothing(config) and not (checkpoint / "critic").is_dir():
        raise ConfigError(
            f"{checkpoint} has no critic, which this run needs (adv_estimator or critic.enable). {way_out}"
        )
    remembered = state["origin"] if state else {}
    for key, value in origin(config, start).items():
        if (before := remembered.get(key, value)) != value:
            raise ConfigError(f"{checkpoint} was trained with {key}={before}, this run asks for {value}. {way_out}")
    notes = [*start.notes, *check_changes(config, checkpoint, state)]
    if not trains_nothing(config):
        notes.append(f"Resuming from step {start.step} of {checkpoint.parent}.")
        if state is None and config.uses_critic:
            notes.append(f"{checkpoint} holds weights only: the critic's optimizer starts fresh.")
    return replace(start, notes=tuple(notes))


def check_probe(config: Config, start: Start) -> None:
    """Weights alone are enough for a step that ends with its gradient analysis: no optimizer of the actor is used."""
    trainer = config.trainer
    if not (trainer.exit_after_gradient_analysis and trainer.is_analysed(start.step + 1)):
        raise ConfigError(
            f"{start.checkpoint} holds weights only (checkpoint.save_contents without optimizer or extra), so training "
            "cannot continue from it. Evaluate it with `ragen eval`, analyse one more step with "
            "trainer.exit_after_gradient_analysis=True trainer.gradient_analysis_every=1, probe its own step with "
            "trainer.gradient_analysis_only=True beside these two, or start over: trainer.resume_mode=disable."
        )


def check_changes(config: Config, checkpoint: Path, state: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Refuse settings other than those of the checkpoint's run, unless the command asks for them; then note them.

    What the files hold that settings name counts like the settings, as far as the state remembers it.
    """
    trainer = config.trainer
    changes = [*changes_since(checkpoint.parent, config), *changed_data((state or {}).get("env_data", {}), config)]
    if not changes:
        return ()
    listed = "".join(f"\n  {change}" for change in changes)
    if trainer.resume_mode == "auto" and not trainer.resume_with_changes and not trains_nothing(config):
        raise ConfigError(
            f"{checkpoint} was trained with other settings than this run asks for:{listed}\n"
            "Give the run another trainer.experiment_name, start over with trainer.resume_mode=disable, or continue "
            "with these changes: trainer.resume_with_changes=True."
        )
    return (f"Settings that differ from those of {checkpoint.parent}:{listed}",)


def check_own_changes(config: Config) -> None:
    """Refuse a command that would continue the checkpoints in its folder with other settings."""
    if config.trainer.resume_mode != "auto":
        return
    newest = find_resume("auto", None, Path(config.trainer.default_local_dir))
    if newest is not None and (state := read_state(newest)) is not None:
        check_changes(config, newest, state)


def origin(config: Config, start: Start) -> dict[str, Any]:
    """What the weights of a run derive from; checkpoints remember it, and a run that differs is another one."""
    names = {"model_path": (config.actor_rollout_ref.model.path, start.actor)}
    if start.critic is not None:
        names["critic.model.path"] = (config.critic.model.path, start.critic)
    # `tiny` alone means another model with every environment.
    models = {key: f"tiny/{Path(path).name}" if name == "tiny" else name for key, (name, path) in names.items()}
    return models | {"lora.rank": config.lora.rank}
