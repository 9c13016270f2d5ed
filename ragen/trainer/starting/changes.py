"""What differs between the settings of a run and those of the command that continues it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ragen.config.load import WITHOUT_KEY, as_meant, to_dict
from ragen.config.schema import Config
from ragen.env import registry
from ragen.errors import ConfigError, FileError
from ragen.files import flatten, read_yaml

MAY_CHANGE = (
    # length
    "trainer.total_training_steps",
    # how often something is done that leaves no trace in the training
    "trainer.save_*",
    "trainer.keep_best",
    "trainer.max_*_ckpt_to_keep",
    "*.checkpoint.*",
    "trainer.test_freq",
    "trainer.val_before_train",
    "trainer.val_greedy",
    "trainer.val_only",
    "trainer.preflight",
    "trainer.gradient_analysis_*",
    "trainer.exit_after_gradient_analysis",
    "actor_rollout_ref.rollout.gradient_analysis_*",
    "collapse_detection.*",
    # logging
    "trainer.logger",
    "trainer.console",
    "trainer.project_name",
    "trainer.experiment_name",
    "trainer.generations_to_log_to_wandb.*",
    "trainer.log_group_rv_table",
    # paths
    "trainer.*_dir",
    "trainer.resume_*",
    # hardware: devices, ranks, micro batches, memory shares
    "system.*",
    "ray_kwargs.*",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
    "trainer.balance_batch",
    "trainer.max_restarts",
    "trainer.watchdog_minutes",
    "trainer.hang_timeout_minutes",
    "*micro_batch_size_per_gpu",
    "*.use_dynamic_bsz",
    "*.ppo_max_token_len_per_gpu",
    "*.enable_gradient_checkpointing",
    "*.entropy_from_logits_with_chunking",
    "*.fsdp_config.*",
    "actor_rollout_ref.rollout.gpu_memory_utilization",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "actor_rollout_ref.rollout.enforce_eager",
    "actor_rollout_ref.rollout.free_cache_engine",
    "actor_rollout_ref.rollout.drafts",
    "actor_rollout_ref.rollout.max_num_*",
)
"""Keys, as patterns, that may differ between the command that wrote a checkpoint and the one that continues from it."""

MODELS = ("model_path", "actor_rollout_ref.model.path", "critic.model.path")
"""Keys that a checkpoint remembers by itself: `origin` in start.py."""


def changes_since(run: Path, config: Config) -> list[str]:
    """What differs from config.yaml of a run directory, but for what may; nothing where that file is missing."""
    path = run / "config.yaml"
    if not path.is_file():
        return []
    try:
        before = read_yaml(path)
    except FileError as error:
        raise ConfigError(
            f"{error} So nobody knows whether this run continues that one. Restore the file, or set "
            "trainer.resume_mode=disable to start over."
        ) from error
    return compare(before, to_dict(config))


def data_facts(config: Config) -> dict[str, str]:
    """Key -> what the file holds that it names, of all environments that are played."""
    sets = (config.es_manager.train.env_configs.tags, config.es_manager.val.env_configs.tags)
    played = dict.fromkeys(tag for tags in sets for tag in tags)
    specs = {tag: config.custom_envs[tag] for tag in played}
    found = (registry.data_facts(tag, spec.env_type, spec.env_config) for tag, spec in specs.items())
    return {key: fact for facts in found for key, fact in facts.items()}


def changed_data(before: Mapping[str, str], config: Config) -> list[str]:
    """Files that hold something else than they did, of those that a checkpoint remembers."""
    return [
        f"{key}: the file has changed: {before[key]} -> {fact}"
        for key, fact in data_facts(config).items()
        if before.get(key, fact) != fact
    ]


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`key: before -> now` of the keys with two values.

    A key that only one side knows is of another version of ragen, unless it is an option of an environment that is
    played: options that are left out are not written down. A key of WITHOUT_KEY has its old value there.
    """
    old, new = flatten(as_meant(before)), flatten(now)
    keys = [key for key in new if key in old or _is_played(key, now, part="env_config.")]
    keys += [key for key in old if key not in new and _is_played(key, now, part="env_config.")]
    if new.get("seed.train") is None:  # drawn at the first start, and continued
        keys = [key for key in keys if key != "seed.train"]
    changed = [key for key in keys if old.get(key) != new.get(key) and key not in MODELS and _matters(key, now)]
    implied = flatten(WITHOUT_KEY).keys() - flatten(before).keys()
    notes = {key: f" (older than this key: {key}={old[key]} continues it as it was)" for key in implied}
    return [f"{key}: {old.get(key)} -> {new.get(key)}{notes.get(key, '')}" for key in changed]


def _matters(key: str, config: Mapping[str, Any]) -> bool:
    if any(fnmatchcase(key, pattern) for pattern in MAY_CHANGE):
        return False
    return not key.startswith("custom_envs.") or _is_played(key, config)


def _is_played(key: str, config: Mapping[str, Any], *, part: str = "") -> bool:
    """Whether a key describes an environment of this run, or that part of its description."""
    sets = (config["es_manager"][name]["env_configs"]["tags"] for name in ("train", "val"))
    return any(key.startswith(f"custom_envs.{tag}.{part}") for tags in sets for tag in tags)
