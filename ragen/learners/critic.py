"""The value model: a token classifier with one output on the actor's architecture."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ragen.algorithms.losses import value_loss
from ragen.config.actor_rollout_ref import CriticConfig
from ragen.learners.batch import Batch
from ragen.learners.learner import Learner, for_each_micro_batch, scatter
from ragen.learners.team import SOLO, Team
from ragen.modeling.load import to_device
from ragen.modeling.packing import Packing
from ragen.modeling.passes import masked_rows
from ragen.modeling.rows import take_rows
from ragen.tracking.names import CRITIC, with_prefix
from ragen.types import Metrics


def sampled_values(model: Any, batch: Batch, ids: Tensor, packing: Packing) -> Tensor:
    """Value of the state in which each masked token was chosen, [masked tokens] in float32."""
    output = model(input_ids=ids, position_ids=packing.position_ids, use_cache=False)
    return take_rows(output.logits[0, :, 0].float(), masked_rows(batch.mask, packing))


class Critic(Learner):
    """The value model and its optimizer."""

    config: CriticConfig

    def __init__(self, model: Any, config: CriticConfig, *, total_steps: int, seed: int = 0, team: Team = SOLO) -> None:
        super().__init__(model, config, total_steps=total_steps, seed=seed, team=team)

    def values(self, batch: Batch) -> Tensor:
        """Values of the sampled tokens without gradient, [batch, seq] on the CPU."""

        def score(micro: Batch, ids: Tensor, packing: Packing) -> tuple[Tensor, ...]:
            return (sampled_values(self.model, micro, ids, packing),)

        max_samples = self.config.ppo_micro_batch_size_per_gpu
        return for_each_micro_batch(self.model, batch, max_samples=max_samples, score=score, team=self.team)[0]

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """Clipped squared error to the returns, one optimizer step per mini batch."""
        metrics = self.train_on(batch, step=step, loss_of=self.loss)
        return with_prefix(CRITIC, metrics)

    def loss(self, batch: Batch, ids: Tensor, packing: Packing) -> tuple[Tensor, dict[str, float]]:
        """The micro batch's share of the value loss."""
        assert batch.values is not None and batch.returns is not None, "the batch was not scored"
        assert batch.weights is not None and batch.mean_weights is not None
        mask, weights, mean_weights, old, returns = (
            to_device(tensor, ids.device)
            for tensor in (batch.mask, batch.weights, batch.mean_weights, batch.values, batch.returns)
        )
        values = scatter(sampled_values(self.model, batch, ids, packing), mask)
        token_loss, token_metrics = value_loss(values, old, returns, cliprange=self.config.cliprange_value)
        loss = (token_loss * weights).sum()
        metrics = {name: (value * mean_weights).sum().item() for name, value in token_metrics.items()}
        return loss, metrics | {"vf_loss": loss.item()}
