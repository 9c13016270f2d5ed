"""All workers in this process: one copy of the policy's weights plays and learns.

Tested in tests/trainer/test_agent_trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragen.config.schema import Config
from ragen.learners.actor import Actor, score_logprobs
from ragen.learners.batch import Batch
from ragen.learners.critic import Critic
from ragen.learners.cross_scoring import cross_logprobs
from ragen.learners.gradients import Gradient, Progress, component_gradients
from ragen.learners.gradients import ignore as ignore_progress
from ragen.learners.host_copies import HostCopies
from ragen.learners.reference import Reference
from ragen.llm_agent.agent_proxy import AgentProxy, OnEpisode, RolloutPlan, ignore, refuse_when_nothing_fits
from ragen.llm_agent.chat import Chat
from ragen.llm_agent.es_manager import EsManager
from ragen.modeling.lora import has_adapter, merged_state
from ragen.types import Episode, Metrics


class LocalWorkers:
    """Actor, critic, reference and engine on one device."""

    def __init__(
        self,
        config: Config,
        agent: AgentProxy,
        *,
        actor: Actor,
        critic: Critic | None,
        reference: Reference | None,
        tokenizer: Any,
    ) -> None:
        self.config, self.agent, self.tokenizer = config, agent, tokenizer
        self.actor, self.critic, self.reference = actor, critic, reference
        self.temperature = config.actor_rollout_ref.rollout.temperature
        self.copies = HostCopies(actor.device)

    @property
    def chat(self) -> Chat | None:
        return self.agent.chat

    def rollout(self, environments: EsManager, plan: RolloutPlan, on_episode: OnEpisode = ignore) -> list[Episode]:
        """Play every seat of `environments` once, in the order of the seats; `on_episode` is called as episodes end.

        The engine's cache goes afterwards: updates need its memory and make it stale, and every rollout starts from the
        same state, whatever came before.
        """
        episodes = self.agent.rollout(environments, plan, on_episode)
        self.agent.engine.end_rollout()
        refuse_when_nothing_fits(episodes)
        return episodes

    def synchronize(self) -> None:
        """Wait for the device, so that clocks measure what has been done."""
        if self.actor.device.type == "cuda":
            torch.cuda.synchronize()

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the sampled tokens under the actor."""
        return score_logprobs(
            self.policy(),
            batch,
            temperature=self.temperature,
            max_samples=self.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu,
            team=self.actor.team.for_copies(),
        )

    def ref_logprobs(self, batch: Batch) -> Tensor:
        """Log-probs of the sampled tokens under the reference."""
        assert self.reference is not None, "no reference model was loaded"
        max_samples = self.config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu
        with self.reference.serving():
            model = self.reference.model
            return score_logprobs(
                model, batch, temperature=self.temperature, max_samples=max_samples, team=self.reference.team
            )[0]

    def values(self, batch: Batch) -> Tensor:
        assert self.critic is not None
        return self.critic.values(batch)

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Log-prob of every continuation after every prompt, [continuations, prompts], and their lengths."""
        size = self.config.collapse_detection.micro_batch_size
        return cross_logprobs(self.policy(), prompts, continuations, micro_batch_size=size)

    def update_actor(self, batch: Batch, *, step: int) -> Metrics:
        metrics = self.actor.update(batch, step=step) | self.refresh_engine()
        return metrics | self.agent.engine.metrics(self.actor.team.sum)

    def policy(self) -> Any:
        """The trained model with all its weights; all ranks must call this."""
        return self.actor.team.full_model(self.actor.model)

    def refresh_engine(self) -> Metrics:
        """Hand the actor's weights to an engine that plays with a copy of them."""

        def weights() -> Mapping[str, Tensor]:
            model = self.policy()
            return merged_state(model) if has_adapter(model) else model.state_dict()

        return self.agent.engine.load_weights(weights, lambda ids: text_logprobs(self.policy(), ids))

    def update_critic(self, batch: Batch, *, step: int) -> Metrics:
        assert self.critic is not None
        return self.critic.update(batch, step=step)

    def gradient_components(
        self, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], progress: Progress = ignore_progress
    ) -> dict[str, dict[str, Gradient]]:
        """Gradients of the parts of the actor's loss, bucket by bucket; nothing is updated.

        `progress` is called with samples that are done where they are in this process.
        """
        return component_gradients(self.actor, batch, buckets, progress)

    @property
    def learners(self) -> dict[str, Actor | Critic]:
        """Role -> what is trained."""
        return {"actor": self.actor} | ({"critic": self.critic} if self.critic else {})

    def save(self, role: str, folder: Path) -> None:
        """Write the checkpoint of a role into a folder."""
        self.learners[role].save(folder, self.tokenizer)

    def snapshot_bytes(self) -> int:
        """The CPU's memory that copies of everything that is saved take, beyond what they have already."""
        return self.copies.num_missing_bytes(self._saved_later())

    def moments_to_come(self) -> int:
        """The CPU's memory that moments will take which no update has made yet."""
        if self.actor.device.type != "cpu":
            return 0
        return sum(learner.optimizer.num_missing_bytes() for learner in self.learners.values())

    def reserve_snapshots(self) -> None:
        """Get that memory, in a thread. On a CPU there is nothing to pin, and pages are taken as they are written."""
        if self.copies.is_pinned:
            self.copies.reserve(self._saved_later())

    def snapshot(self, role: str) -> Callable[[Path], None]:
        """Copy what the checkpoint of a role holds now; what is returned writes it, in any thread.

        The next snapshot of that role takes the same memory, so only one of them is used at a time.
        """
        saved = self.learners[role].saved(self.tokenizer)
        assert saved is not None, "ranks take no snapshots"
        return saved.copied(role, self.copies).write

    def _saved_later(self) -> dict[str, Tensor]:
        return {
            name: tensor
            for role, learner in self.learners.items()
            for name, tensor in learner.saved_later(self.tokenizer).tensors(role).items()
        }

    def load_optimizers(self, folder: Path) -> None:
        """The optimizer states of a checkpoint; weights and adapters were loaded with the models."""
        for role, learner in self.learners.items():
            learner.load_optimizer(folder / role)

    def close(self) -> None:
        self.agent.engine.close()
        self.copies.close()


@torch.no_grad()
def text_logprobs(model: Any, ids: Sequence[int]) -> Tensor:
    """Log-prob of every token but the first, at temperature 1, by one plain pass of the model."""
    tokens = torch.tensor([list(ids)], device=model.device)
    logits = model(input_ids=tokens, use_cache=False).logits[0, :-1]
    return torch.log_softmax(logits.float(), dim=-1).gather(1, tokens[0, 1:, None])[:, 0].cpu()
