"""What a trainer calls: workers in this process (local.py) or in many (ray.py), and what is saved of them by role."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ragen.config.actor_rollout_ref import ActorConfig, CriticConfig
from ragen.config.schema import Config

if TYPE_CHECKING:
    from ragen.workers.local import LocalWorkers
    from ragen.workers.ray import RayWorkers

Workers: TypeAlias = "LocalWorkers | RayWorkers"
"""Models, optimizers and engines. Tensors go in and come out on the CPU."""
Saver = Callable[[Path], None]
"""Writes the checkpoint of a role into a folder."""


def savers(workers: Workers) -> dict[str, Saver]:
    """Role -> function that writes its checkpoint into a folder."""
    return {role: partial(workers.save, role) for role in _trained(workers.config)}


def snapshots(workers: Workers) -> dict[str, Saver]:
    """The same for what is trained at this moment: training may go on before it is written."""
    return {role: workers.snapshot(role) for role in _trained(workers.config)}


def saves_all(workers: Workers) -> bool:
    """Checkpoints hold everything that training needs to resume."""
    contents = [role.checkpoint.save_contents for role in _trained(workers.config).values()]
    return all({"optimizer", "extra"} <= set(parts) for parts in contents)


def _trained(config: Config) -> dict[str, ActorConfig | CriticConfig]:
    """Role -> configuration of what is trained."""
    return {"actor": config.actor_rollout_ref.actor} | ({"critic": config.critic} if config.uses_critic else {})
