"""The policy: log-probs of sampled tokens, and the update."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ragen.algorithms.entropy import CHUNK_SIZE, head_logprobs
from ragen.algorithms.kl import full_kl, token_kl
from ragen.algorithms.losses import PolicyInputs, policy_loss
from ragen.config.actor_rollout_ref import ActorConfig
from ragen.learners.batch import Batch
from ragen.learners.learner import Learner, scatter, score_batch, scored
from ragen.learners.reference import Reference
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.fused_layers import fusable_head
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import Packing
from ragen.modeling.rows import take_rows
from ragen.modeling.slices import Slices
from ragen.modeling.team import SOLO, Team
from ragen.tracking.names import ACTOR, with_prefix
from ragen.types import Metrics


def sampled_hidden(model: Any, packing: Packing) -> Tensor:
    """Hidden states from which the sampled tokens were drawn, [sampled tokens, dim]."""
    return take_rows(hidden_states(model, packing), packing.sampled)


def sampled_logprobs(
    model: Any, hidden: Tensor, targets: Tensor, *, temperature: float, chunk_size: int = CHUNK_SIZE
) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy of the sampled tokens, [sampled tokens]; only their logits are computed."""
    if (weight := fusable_head(model)) is not None and len(hidden):
        from ragen.modeling.kernels.head import head_logprobs as fused_logprobs

        return fused_logprobs(hidden, weight, targets, temperature=temperature, chunk_size=min(chunk_size, CHUNK_SIZE))
    return head_logprobs(hidden, partial(logits_of, model), targets, temperature=temperature, chunk_size=chunk_size)


def score_logprobs(
    model: Any, batch: Batch, *, temperature: float, max_samples: int, team: Team = SOLO
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies without gradient, [batch, seq] on the CPU."""

    def score(packing: Packing) -> tuple[Tensor, ...]:
        return sampled_logprobs(model, sampled_hidden(model, packing), packing.targets, temperature=temperature)

    logprobs, entropies = score_batch(model, batch, max_samples=max_samples, score=score, team=team)
    return logprobs, entropies


class Actor(Learner):
    """The policy and its optimizer."""

    config: ActorConfig

    def __init__(
        self,
        model: Any,
        config: ActorConfig,
        *,
        temperature: float,
        total_steps: int,
        seed: int = 0,
        reference: Reference | None = None,
        team: Team = SOLO,
    ) -> None:
        super().__init__(model, config, total_steps=total_steps, seed=seed, team=team)
        self.temperature, self.reference = temperature, reference
        self.policy_loss = policy_loss(config.policy_loss)
        # Without chunking the logits of a micro batch exist at once: faster while they are small.
        self.chunk_size = CHUNK_SIZE if config.entropy_from_logits_with_chunking else 2**31 - 1

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Policy loss - entropy_coeff * entropy + kl_loss_coef * KL, one optimizer step per mini batch."""
        metrics = self.train_on(batch, step=step)
        if self.config.use_kl_loss:
            metrics["kl_coef"] = self.config.kl_loss_coef
        return with_prefix(ACTOR, metrics)

    def loss(self, batch: Batch, packing: Packing) -> tuple[Tensor, dict[str, float]]:
        """The micro batch's share of the total loss."""
        terms, metrics = self.terms(batch, packing)
        task, *others = terms.values()
        values = torch.stack(list(metrics.values())).tolist()  # the GPU is waited for once
        return sum(others, start=task), dict(zip(metrics, values, strict=True))

    def terms(
        self, batch: Batch, packing: Packing, slices: Slices | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The parts of the loss, with their weights and signs: task, entropy and kl; and metrics, on the device.

        With `slices` of the packed row, entered by the caller, each has weights of its own.
        """
        config, on_device = self.config, partial(scored, device=packing.ids.device)
        hidden = sampled_hidden(self.model, packing)
        score = partial(sampled_logprobs, self.model, temperature=self.temperature, chunk_size=self.chunk_size)
        flat_logprobs, flat_entropies = (
            slices.head(score, hidden, packing.targets) if slices else score(hidden, packing.targets)
        )
        mask, weights, mean_weights = map(on_device, (batch.mask, batch.weights, batch.mean_weights))
        logprobs, entropies = scatter(flat_logprobs, batch.mask), scatter(flat_entropies, batch.mask)
        inputs = PolicyInputs(
            logprobs=logprobs,
            old_logprobs=on_device(batch.old_logprobs),
            advantages=on_device(batch.advantages),
            mask=mask,
            clip_low=config.clip_ratio_low,
            clip_high=config.clip_ratio_high,
            clip_c=config.clip_ratio_c,
        )
        token_loss, token_metrics = self.policy_loss(inputs)
        if batch.importance is not None:
            token_loss = token_loss * on_device(batch.importance)
        policy, entropy = (token_loss * weights).sum(), (entropies * weights).sum()
        terms = {"task": policy, "entropy": -config.entropy_coeff * entropy}
        metrics = {name: (values * mean_weights).sum() for name, values in token_metrics.items()}
        metrics |= {"pg_loss": policy, "entropy_loss": entropy}
        if config.use_kl_loss:
            if config.kl_loss_type == "full":
                token_kls = scatter(self.full_kl(hidden, packing, slices), batch.mask)
            else:
                token_kls = token_kl(logprobs, on_device(batch.ref_logprobs), config.kl_loss_type)
            kl = (token_kls * weights).sum()
            terms["kl"] = config.kl_loss_coef * kl
            metrics |= {"kl_loss": kl}
        return terms, {name: value.detach() for name, value in metrics.items()}

    def full_kl(self, hidden: Tensor, packing: Packing, slices: Slices | None = None) -> Tensor:
        """Exact KL to the reference at the sampled tokens, [sampled tokens]; both distributions a chunk at a time."""
        reference = self.reference
        assert reference is not None, "no reference model was loaded"
        with torch.no_grad(), reference.serving(), packed_attention(reference.model, packing):
            ref_hidden = reference.team.run(partial(sampled_hidden, reference.model, packing))

        def chunk_kl(states: Tensor, ref_states: Tensor) -> Tensor:
            # Adapters leave the output layer alone, so the reference needs no switching here.
            logits = logits_of(self.model, states), logits_of(reference.model, ref_states).detach()
            ours, theirs = (torch.log_softmax(z.float() / self.temperature, dim=-1) for z in logits)
            return full_kl(ours, theirs)

        def kls(states: Tensor, ref_states: Tensor) -> tuple[Tensor]:
            chunks = zip(states.split(CHUNK_SIZE), ref_states.split(CHUNK_SIZE), strict=True)
            return (torch.cat([checkpoint(chunk_kl, *chunk, use_reentrant=False) for chunk in chunks]),)  # type: ignore[misc]

        (found,) = slices.head(kls, hidden, ref_hidden) if slices else kls(hidden, ref_hidden)
        return found
