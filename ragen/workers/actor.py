"""The policy: log-probs of sampled tokens, and the update."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ragen.algorithms.entropy import CHUNK_SIZE, head_logprobs
from ragen.algorithms.kl import token_kl
from ragen.algorithms.losses import POLICY_LOSSES
from ragen.config.actor_rollout_ref import ActorConfig
from ragen.types import Metrics
from ragen.workers.batch import Batch
from ragen.workers.learner import Learner, for_each_micro_batch, scatter
from ragen.workers.model import hidden_states, logits_of, masked_rows, masked_targets
from ragen.workers.packed import Packing


def sampled_logprobs(
    model: Any, batch: Batch, ids: Tensor, packing: Packing, *, temperature: float, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy of the masked tokens, [masked tokens]; only their logits are computed."""
    hidden = hidden_states(model, ids, packing)[masked_rows(batch.mask, packing).to(ids.device)]
    targets = masked_targets(batch.ids, batch.mask).to(ids.device)
    logprobs, entropies = head_logprobs(
        hidden,
        lambda states: logits_of(model, states),
        targets,
        temperature=temperature,
        with_entropy=True,
        chunk_size=chunk_size,
    )
    assert entropies is not None
    return logprobs, entropies


def score_logprobs(model: Any, batch: Batch, *, temperature: float, max_samples: int) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies without gradient, [batch, seq] on the CPU."""

    def score(micro: Batch, ids: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        return sampled_logprobs(model, micro, ids, packing, temperature=temperature, chunk_size=CHUNK_SIZE)

    logprobs, entropies = for_each_micro_batch(model, batch, max_samples=max_samples, score=score)
    return logprobs, entropies


class Actor(Learner):
    """The policy and its optimizer."""

    config: ActorConfig

    def __init__(self, model: Any, config: ActorConfig, *, temperature: float, total_steps: int) -> None:
        super().__init__(model, config, total_steps=total_steps)
        self.temperature = temperature
        # Without chunking the logits of a micro batch exist at once: faster while they are small.
        self.chunk_size = CHUNK_SIZE if config.entropy_from_logits_with_chunking else 2**31 - 1

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Policy loss - entropy_coeff * entropy + kl_loss_coef * KL, one optimizer step per mini batch."""
        metrics = self.train_on(batch, step=step, loss_of=self.loss)
        return {name if "/" in name else f"actor/{name}": value for name, value in metrics.items()}

    def loss(self, batch: Batch, ids: Tensor, packing: Packing) -> tuple[Tensor, dict[str, float]]:
        """The micro batch's share of the total loss."""
        terms, metrics = self.terms(batch, ids, packing)
        total = sum(terms.values(), start=next(iter(terms.values())) * 0)
        return total, metrics

    def terms(self, batch: Batch, ids: Tensor, packing: Packing) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The parts of the loss, with their weights and signs: task, entropy and kl."""
        config, device = self.config, ids.device

        def on_device(tensor: Tensor | None) -> Tensor:
            assert tensor is not None, "the batch was not scored"
            return tensor.to(device)

        flat_logprobs, flat_entropies = sampled_logprobs(
            self.model, batch, ids, packing, temperature=self.temperature, chunk_size=self.chunk_size
        )
        mask, weights, mean_weights = map(on_device, (batch.mask, batch.weights, batch.mean_weights))
        logprobs, entropies = scatter(flat_logprobs, mask), scatter(flat_entropies, mask)
        token_loss, token_metrics = POLICY_LOSSES[config.policy_loss](
            logprobs,
            on_device(batch.old_logprobs),
            on_device(batch.advantages),
            mask,
            clip_low=config.clip_ratio_low,
            clip_high=config.clip_ratio_high,
            clip_c=config.clip_ratio_c,
        )
        if batch.importance is not None:
            token_loss = token_loss * on_device(batch.importance)
        policy, entropy = (token_loss * weights).sum(), (entropies * weights).sum()
        terms = {"task": policy, "entropy": -config.entropy_coeff * entropy}
        metrics = {name: (values * mean_weights).sum().item() for name, values in token_metrics.items()}
        metrics |= {"actor/pg_loss": policy.item(), "actor/entropy_loss": entropy.item()}
        if config.use_kl_loss:
            kl = (token_kl(logprobs, on_device(batch.ref_logprobs), config.kl_loss_type) * weights).sum()
            terms["kl"] = config.kl_loss_coef * kl
            metrics |= {"actor/kl_loss": kl.item()}
        return terms, metrics


