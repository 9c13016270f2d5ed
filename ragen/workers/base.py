"""What a trainer asks of its workers: one process (local.py) or many (ray.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ragen.config.actor_rollout_ref import ActorConfig, CriticConfig
from ragen.config.schema import Config
from ragen.learners.batch import Batch
from ragen.learners.gradients import Gradient, Progress
from ragen.llm_agent.agent_proxy import OnEpisode, RolloutPlan, ignore
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import EsManager
from ragen.types import Episode, Metrics


class Workers(Protocol):
    """Models, optimizers and engines. Tensors go in and come out on the CPU."""

    config: Config
    tokenizer: Any

    @property
    def chat(self) -> Chat | None: ...

    def rollout(self, environments: EsManager, plan: RolloutPlan, on_episode: OnEpisode = ignore) -> list[Episode]:
        """Play every seat of `environments` once, in the order of the seats.

        `on_episode` is called as episodes end, or with all of them when several processes have played.
        """
        ...

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the sampled tokens under the actor."""
        ...

    def ref_logprobs(self, batch: Batch) -> Tensor:
        """Log-probs of the sampled tokens under the reference."""
        ...

    def values(self, batch: Batch) -> Tensor: ...

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Log-prob of every continuation after every prompt, [continuations, prompts], and their lengths."""
        ...

    def update_actor(self, batch: Batch, *, step: int) -> Metrics: ...

    def update_critic(self, batch: Batch, *, step: int) -> Metrics: ...

    def gradient_components(
        self, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], progress: Progress
    ) -> dict[str, dict[str, Gradient]]:
        """Gradients of the parts of the actor's loss, bucket by bucket; nothing is updated.

        `progress` is called with samples that are done where they are in this process.
        """
        ...

    def save(self, role: str, folder: Path) -> None:
        """Write the checkpoint of a role, "actor" or "critic", into a folder."""
        ...

    def snapshot_bytes(self) -> int | None:
        """The CPU's memory that copies of everything that is saved take, beyond what they have already.

        None where nothing can be copied.
        """
        ...

    def moments_to_come(self) -> int:
        """The CPU's memory that moments will take which no update has made yet."""
        ...

    def reserve_snapshots(self) -> None:
        """Get that memory, beside other work."""
        ...

    def snapshot(self, role: str) -> Callable[[Path], None]:
        """Copy what the checkpoint of a role holds now; what is returned writes it, in any thread.

        The next snapshot of that role takes the same memory, so only one of them is used at a time.
        """
        ...

    def synchronize(self) -> None:
        """Wait for the devices, so that clocks measure what has been done."""
        ...

    def close(self) -> None: ...


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
