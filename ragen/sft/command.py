"""What `ragen sft` does: demonstrations of the solver, supervised training, merging, and a validation by real rollouts.

    <output_dir>/config.yaml, sft.json, metrics.jsonl, status.json, train.log
    <output_dir>/lora_weights/global_step_<N>/actor   adapters and optimizer after each epoch (weights/... without LoRA)
    <output_dir>/merged_model/                        the checkpoint with the lowest loss as a whole model, with
                                                      its card, README.md, validate.log and the levels behind it,
                                                      played_levels.json
    <output_dir>/validation/                          the episodes that the merged model played

A command that is started again resumes where it was; a finished stage is not repeated.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config import Config
from ragen.config.load import unwritten
from ragen.config.show import to_yaml
from ragen.errors import ConfigError
from ragen.files import flatten, read_object
from ragen.models.folder import check_context
from ragen.models.resolve import resolve_model
from ragen.sft.card import sft_card
from ragen.sft.config import ROLE, SftConfig
from ragen.tracking.console import console
from ragen.tracking.lock import run_lock
from ragen.tracking.names import SFT_VAL_LOSS
from ragen.tracking.rundir import SFT_RECORD, RunDir, read_records, read_status, write_atomic
from ragen.tracking.tracker import Trackers
from ragen.tracking.trackers.console_tracker import step_line
from ragen.trainer.card import CARD
from ragen.trainer.checkpoints.checkpoint import find_resume, read_state, save_checkpoint, step_of
from ragen.trainer.checkpoints.checksums import verify
from ragen.trainer.held_out import levels_behind
from ragen.trainer.starting.changes import data_facts
from ragen.trainer.starting.devices import check_devices, device_notes, export_devices
from ragen.trainer.starting.packages import check_packages
from ragen.trainer.train import with_restarts

if TYPE_CHECKING:
    from ragen.sft.finetune import Finetuner
    from ragen.sft.ray_finetune import RayTuner

MAY_CHANGE = ("output_dir", "data_dir", "num_processes", "micro_batch_size", "validate_merged")
"""Keys of sft that may differ when a run is resumed."""
LENGTHS = ("response_length", "max_model_len")
"""Keys of the rollout that a run is made from, as its record names them."""


def run(config: Config, sft: SftConfig) -> None:
    """Check what the machine must have, then run all stages."""
    if config.trainer.seeds > 1:
        raise ConfigError(f"trainer.seeds={config.trainer.seeds}: only a training repeats itself. Leave it out here.")
    check_packages(config)
    check_devices(config)
    for note in device_notes(config):
        console.print(note, soft_wrap=True)
    export_devices(config)
    run_sft(config, sft)


def run_sft(config: Config, sft: SftConfig) -> Path:
    """All stages; returns the folder of the merged model."""
    root = Path(sft.output_dir)
    merged = root / "merged_model"
    with run_lock(root):
        check_same_run(root, config, sft)
        RunDir(root).write_config(to_yaml(config))
        if not merged.exists():
            best = with_restarts(config.trainer.max_restarts, partial(train, config, sft, root))
            gc.collect()  # the hooks of the optimizer hold the trained model in a cycle
            merge(config, sft, best, merged, card=sft_card(config, sft, rows=read_records(root)))
            console.print(f"Merged model: {merged}   (best checkpoint: {best})", soft_wrap=True)
        if sft.validate_merged:
            validate(config, sft, root, merged)
    return merged


def check_same_run(root: Path, config: Config, sft: SftConfig) -> None:
    """Write down what the weights follow from; a folder that holds a run with other settings is refused."""
    ours = json.loads(json.dumps(flatten(origin(config, sft))))
    path = root / SFT_RECORD
    if not path.exists():
        write_atomic(path, json.dumps(ours, indent=2) + "\n")
    absent = {key: value for key, value in flatten(unwritten()).items() if key.startswith("agent_proxy.")}
    absent |= {key: value for key, value in ours.items() if key.startswith("env_data.")}
    theirs = absent | read_object(path)  # of a version that had fewer keys
    for key in sorted({*ours, *theirs}):
        if theirs.get(key) != ours.get(key):
            name = f"actor_rollout_ref.rollout.{key}" if key in LENGTHS else key
            raise ConfigError(
                f"{root} holds a run with {name}={theirs.get(key)}, this one asks for {ours.get(key)}. "
                f"Set {name} as it was, choose another sft.output_dir, or remove that folder."
            )


def origin(config: Config, sft: SftConfig) -> dict[str, Any]:
    """Everything the trained weights follow from."""
    tags = config.es_manager.train.env_configs.tags
    rollout = config.actor_rollout_ref.rollout
    return {
        "model_path": config.actor_rollout_ref.model.path,
        "lora": asdict(config.lora),
        "seed.train": config.seed.train,
        "sft": {key: value for key, value in asdict(sft).items() if key not in MAY_CHANGE},
        "agent_proxy": asdict(config.agent_proxy),
        "custom_envs": {tag: asdict(config.custom_envs[tag]) for tag in tags},
        "env_data": data_facts(config),
        **{key: getattr(rollout, key) for key in LENGTHS},
    }


def train(config: Config, sft: SftConfig, root: Path) -> Path:
    """Train to the last epoch, from the newest checkpoint on; returns the checkpoint with the lowest loss."""
    from ragen.llm_agent.build import build_chat
    from ragen.modeling.load import default_device, load_tokenizer
    from ragen.sft.data import load_data
    from ragen.sft.finetune import epoch_batches

    saved = root / ("lora_weights" if config.lora.rank > 0 else "weights")
    newest = find_resume("auto", None, saved)
    if newest:
        verify(newest)
    state = (read_state(newest) if newest else None) or {"epoch": 0, "val_losses": {}}
    first_epoch, val_losses = state["epoch"], {int(step): loss for step, loss in state["val_losses"].items()}
    if first_epoch < sft.epochs:
        base = base_model(config)
        tokenizer = load_tokenizer(base)
        if note := build_chat(config, tokenizer).note:
            console.print(note, soft_wrap=True)
        samples, val_samples = load_data(config, sft, model=base, tokenizer=tokenizer)
        assert config.seed.train is not None, "load_sft refuses null"
        batches = partial(epoch_batches, samples, batch_size=sft.batch_size, seed=config.seed.train)
        total_steps = sum(len(batches(epoch=epoch)) for epoch in range(sft.epochs))
        resumed_step = step_of(newest) if newest else None
        step = resumed_step or 0
        with (
            closing(build_tuner(config, sft, base, newest, total_steps=total_steps)) as tuner,
            Trackers(
                config, RunDir(root), total_steps=total_steps, resumed_step=resumed_step, device=default_device()
            ) as trackers,
        ):

            def log(step: int, metrics: dict[str, float]) -> None:
                trackers.log(step, metrics)
                with (root / "train.log").open("a") as file:
                    file.write(step_line(step, metrics) + "\n")

            if not newest and sft.validate_before_training:
                log(0, {SFT_VAL_LOSS: tuner.loss(val_samples)})
            for epoch in range(first_epoch, sft.epochs):
                of_epoch = batches(epoch=epoch)
                for number, batch in enumerate(of_epoch, start=1):
                    step += 1
                    metrics = tuner.update(batch, step=step) | {"sft/epoch": epoch + number / len(of_epoch)}
                    if number == len(of_epoch):
                        val_losses[step] = metrics[SFT_VAL_LOSS] = tuner.loss(val_samples)
                        save_checkpoint(saved, step, {ROLE: tuner.save}, {"epoch": epoch + 1, "val_losses": val_losses})
                        remove_old_checkpoints(config, saved, keep={step, best_step(val_losses)})
                    log(step, metrics)
    return saved / f"global_step_{best_step(val_losses)}"


def base_model(config: Config) -> Path | str:
    """The model that the training starts from."""
    tags = config.es_manager.train.env_configs.tags
    env_types = sorted({config.custom_envs[tag].env_type for tag in tags})
    path = resolve_model(config.actor_rollout_ref.model.path, env_types=env_types)
    check_context(path, config.actor_rollout_ref.rollout.max_model_len, "actor_rollout_ref.rollout.max_model_len")
    return path


def build_tuner(
    config: Config, sft: SftConfig, base: Path | str, checkpoint: Path | None, *, total_steps: int
) -> Finetuner | RayTuner:
    """The model in training, in this process or on several devices; from a checkpoint if there is one."""
    if config.uses_fsdp:
        from ragen.sft.ray_finetune import ray_tuner

        return ray_tuner(config, sft, base, checkpoint, total_steps=total_steps)
    from ragen.sft.finetune import Finetuner
    from ragen.trainer.build import load_trained

    tuner = Finetuner(load_trained(config, base, checkpoint, ROLE), sft, total_steps=total_steps)
    if checkpoint:
        tuner.load_optimizer(checkpoint / ROLE)
    return tuner


def best_step(val_losses: dict[int, float]) -> int:
    return min(val_losses, key=lambda step: (val_losses[step], step))


def remove_old_checkpoints(config: Config, saved: Path, *, keep: set[int]) -> None:
    """Whole weights are large: only the best and the newest stay. Adapters all stay."""
    if config.lora.rank == 0:
        for folder in saved.glob("global_step_*"):
            if step_of(folder) not in keep:
                shutil.rmtree(folder)


def merge(config: Config, sft: SftConfig, best: Path, merged: Path, *, card: str) -> None:
    """Write the best checkpoint as one ordinary model that names its levels; the folder appears when it is whole."""
    from ragen.modeling.load import load_tokenizer
    from ragen.modeling.lora import has_adapter, merged_state
    from ragen.sft.data import levels_of
    from ragen.trainer.build import load_trained

    base = base_model(config)
    model = load_trained(config, base, best, ROLE)
    temporary = merged.with_name(f".{merged.name}.{os.getpid()}.tmp")
    model.save_pretrained(temporary, state_dict=merged_state(model) if has_adapter(model) else None)
    load_tokenizer(base).save_pretrained(temporary)
    played = levels_behind(base)
    for tag in config.es_manager.train.env_configs.tags:
        played.add(levels_of(config, tag, range(sft.seed, sft.seed + sft.train_size)))
    played.write(temporary)
    (temporary / CARD).write_text(card)
    for file in temporary.iterdir():
        file.chmod(0o644)
    temporary.rename(merged)


def validate(config: Config, sft: SftConfig, root: Path, merged: Path) -> None:
    """Play the validation levels with the merged model, once, and tell its card."""
    from ragen.evaluation.command import run_evaluation
    from ragen.evaluation.evaluate import COLUMNS, table_rows

    folder = root / "validation"
    if (folder / "status.json").exists() and read_status(folder)["state"] == "finished":
        console.print(f"{merged} has been validated: {folder}", soft_wrap=True)
        return
    parts = config.actor_rollout_ref
    parts = replace(parts, model=replace(parts.model, path=str(merged)))
    trained = replace(config, model_path=str(merged), actor_rollout_ref=parts)
    results = run_evaluation(trained, folder, modes=("sampled", "greedy"), has_references=True)
    rows = [[tag, *row] for tag in config.es_manager.val.env_configs.tags for row in table_rows(results, tag)]
    lines = [" | ".join(row) for row in [["environment", *COLUMNS], *rows]]
    write_atomic(merged / "validate.log", "\n".join(lines) + "\n")
    write_atomic(merged / CARD, sft_card(config, sft, rows=read_records(root), played=rows, columns=COLUMNS))
