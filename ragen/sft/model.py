"""The model that supervised training starts from, or resumes with.

Tested in tests/sft/test_command.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ragen.config.schema import Config

ROLE: Final = "actor"
"""Folder of the model in a checkpoint."""


def base_model(config: Config) -> Path | str:
    from ragen.models.folder import check_context
    from ragen.models.resolve import resolve_model

    tags = config.es_manager.train.env_configs.tags
    env_types = sorted({config.custom_envs[tag].env_type for tag in tags})
    path = resolve_model(config.actor_rollout_ref.model.path, env_types=env_types)
    check_context(path, config.actor_rollout_ref.rollout.max_model_len, "actor_rollout_ref.rollout.max_model_len")
    return path


def build_model(config: Config, base: Path | str, checkpoint: Path | None) -> Any:
    """The model to train: the base, or what a checkpoint made of it."""
    from ragen.trainer.build import load_trained

    return load_trained(config, base, checkpoint, ROLE)
