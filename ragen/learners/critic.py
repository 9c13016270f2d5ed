"""The value model: a token classifier with one output on the actor's architecture."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ragen.algorithms.losses import value_loss
from ragen.config.actor_rollout_ref import CriticConfig
from ragen.learners.batch import Batch
from ragen.learners.learner import Learner, scatter, score_batch, scored
from ragen.modeling.packing import Packing
from ragen.modeling.rows import take_rows
from ragen.tracking.names import CRITIC, with_prefix
from ragen.types import Metrics


def sampled_values(model: Any, packing: Packing) -> Tensor:
    """Value of the state in which each sampled token was chosen, [sampled tokens] in float32."""
    output = model(input_ids=packing.ids, position_ids=packing.position_ids, use_cache=False)
    return take_rows(output.logits[0, :, 0].float(), packing.sampled)


class Critic(Learner):
    """The value model and its optimizer."""

    config: CriticConfig

    def values(self, batch: Batch) -> Tensor:
        """Values of the sampled tokens without gradient, [batch, seq] on the CPU."""
        (values,) = score_batch(
            self.model,
            batch,
            max_samples=self.config.ppo_micro_batch_size_per_gpu,
            score=lambda packing: (sampled_values(self.model, packing),),
            team=self.team,
        )
        return values

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Clipped squared error to the returns, one optimizer step per mini batch."""
        return with_prefix(CRITIC, self.train_on(batch, step=step))

    def loss(self, batch: Batch, packing: Packing) -> tuple[Tensor, dict[str, float]]:
        """The micro batch's share of the value loss."""
        on_device = partial(scored, device=packing.ids.device)
        weights, mean_weights = map(on_device, (batch.weights, batch.mean_weights))
        values = scatter(sampled_values(self.model, packing), batch.mask)
        old_values, returns = on_device(batch.values), on_device(batch.returns)
        token_loss, token_metrics = value_loss(values, old_values, returns, cliprange=self.config.cliprange_value)
        loss = (token_loss * weights).sum()
        metrics = {name: (value * mean_weights).sum() for name, value in token_metrics.items()}
        metrics |= {"vf_loss": loss.detach()}
        numbers = torch.stack(list(metrics.values())).tolist()  # the GPU is waited for once
        return loss, dict(zip(metrics, numbers, strict=True))
