"""Keys of supervised training: the section `sft` beside the normal configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from ragen.config.actor_rollout_ref import OptimConfig
from ragen.config.bounds import Count, ZeroToOne
from ragen.config.load import CONFIG_DIR, compose, load_config
from ragen.config.schema import Config
from ragen.config.seeds import check_disjoint, training_levels, validation_levels
from ragen.config.strict import build_dataclass
from ragen.errors import ConfigError

SECTION = "sft."
ROLE: Final = "actor"
"""Folder of the model in a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """Demonstrations and the training on them. The model, LoRA, tags and prompts are those of the normal keys."""

    output_dir: Annotated[str, "Folder of the run: metrics, checkpoints, merged_model."]
    data_dir: Annotated[str | None, "Folder of train.parquet and test.parquet; null keeps demonstrations in memory."]
    train_size: Annotated[Count, "Levels of each tag that are demonstrated for training."]
    val_size: Annotated[Count, "Levels of each tag behind them, for the validation loss."]
    seed: Annotated[int, "Seed of the first level."]
    noise: Annotated[ZeroToOne, "Share of demonstrated replies with random actions; 0 is the solver alone."]
    max_plan: Annotated[Count, "Levels whose shortest solution is longer are left out."]
    num_processes: Annotated[Count | None, "Most processes that make demonstrations; null takes every core."]
    epochs: Annotated[Count, "Passes over the demonstrations."]
    batch_size: Annotated[Count, "Replies per optimizer step, in whole episodes."]
    micro_batch_size: Annotated[Count, "Sequences per forward and backward pass, packed without padding."]
    max_length: Annotated[Count, "Most tokens of a sequence; an episode ends before it would be longer."]
    validate_before_training: Annotated[bool, "Measure the validation loss of the untrained model, too."]
    validate_merged: Annotated[bool, "Play the validation levels with the finished model."]
    grad_clip: Annotated[float, "Largest norm of the gradient."]
    optim: OptimConfig


def load_sft(
    config_name: str = "base", overrides: Sequence[str] = (), config_dir: str | None = None
) -> tuple[Config, SftConfig]:
    """The normal configuration and the section `sft`, checked against each other."""
    config = load_config(config_name, [o for o in overrides if not o.startswith(SECTION)], config_dir)
    section = section_of(config_name, config_dir)
    tree = compose(section.stem, [o for o in overrides if o.startswith(SECTION)], section.parent)
    sft = build_dataclass(SftConfig, tree["sft"], "sft")
    if config.seed.train is None:
        raise ConfigError("seed.train is null. Supervised training derives its order from it: set a number.")
    # No level of the demonstrations is trained on or validated on by reinforcement learning.
    theirs = {"seed.val": validation_levels(config), "seed.train": training_levels(config, config.seed.train)}
    ours = range(sft.seed, sft.seed + sft.train_size + sft.val_size)
    check_disjoint("sft.seed", "demonstrated", ours, theirs, least=100_000)
    response_length = config.actor_rollout_ref.rollout.response_length
    if sft.max_length <= response_length:
        raise ConfigError(
            f"sft.max_length is {sft.max_length}, actor_rollout_ref.rollout.response_length is {response_length}: "
            "no room for a prompt. Raise sft.max_length or lower response_length."
        )
    return config, sft


def section_of(config_name: str, config_dir: str | None) -> Path:
    """The file of the section: `sft/<config_name>.yaml` in the folder of that config, else sft.yaml."""
    own = Path(config_dir or CONFIG_DIR) / "sft" / f"{config_name.removesuffix('.yaml')}.yaml"
    return own if own.is_file() else CONFIG_DIR / "sft" / "sft.yaml"
