"""Fine-tuning on demonstrations: the loss of the reply tokens, in packed passes, whole weights or LoRA."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragen.learners.actor import sampled_hidden, sampled_logprobs
from ragen.learners.batch import make_batch
from ragen.learners.learner import save_optimizer
from ragen.learners.optimizer import Optimizer
from ragen.learners.saved import OPTIMIZER_FILE
from ragen.modeling.finite import check_finite
from ragen.modeling.lora import has_adapter, save_adapter
from ragen.modeling.packing import Packing, micro_batches
from ragen.modeling.passes import passes
from ragen.modeling.team import SOLO, Team
from ragen.seeding import Rng
from ragen.sft.config import SftConfig
from ragen.tracking.names import SFT_SPEED, SFT_TRAIN_LOSS
from ragen.types import Metrics, Sample


def epoch_batches(samples: Sequence[Sample], *, batch_size: int, seed: int, epoch: int) -> list[list[Sample]]:
    """The samples of each optimizer step of an epoch: random order, at least `batch_size` replies where they last."""
    order = list(range(len(samples)))
    Rng(seed, "sft", epoch).shuffle(order)
    batches: list[list[Sample]] = []
    num_replies = batch_size
    for index in order:
        if num_replies >= batch_size:
            batches.append([])
            num_replies = 0
        batches[-1].append(samples[index])
        num_replies += len(samples[index].turn_spans)
    return batches


def reply_nll(model: Any, packing: Packing) -> Tensor:
    """Sum of the negative log-likelihoods of the reply tokens."""
    logprobs, _ = sampled_logprobs(model, sampled_hidden(model, packing), packing.targets, temperature=1.0)
    return -logprobs.sum()


class Finetuner:
    """A model in supervised training. What it does follows from its weights, the step and the samples alone."""

    def __init__(self, model: Any, sft: SftConfig, *, total_steps: int, team: Team = SOLO) -> None:
        self.model, self.sft, self.total_steps, self.team = model, sft, total_steps, team
        # The cosine reaches zero one step after the last, which would otherwise do nothing.
        self.optimizer = Optimizer(model, sft.optim, grad_clip=sft.grad_clip, total_steps=total_steps + 1)

    def update(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        """One optimizer step on the mean loss of all reply tokens of `samples`."""
        started = time.monotonic()
        total = 0.0
        self.model.train()
        for loss in self.losses(samples):
            loss.backward()
            total += loss.item()
        norm = self.optimizer.step(step)
        self.team.weights_changed()
        self.model.eval()
        seconds = time.monotonic() - started
        return {
            SFT_TRAIN_LOSS: self.team.sum({"loss": total})["loss"],
            "sft/grad_norm": norm,
            "sft/lr": self.optimizer.learning_rate(step),
            SFT_SPEED: sum(len(sample.input_ids) for sample in samples) / seconds,
        }

    @torch.no_grad()
    def loss(self, samples: Sequence[Sample]) -> float:
        """Mean loss of the reply tokens of `samples`."""
        return self.team.sum({"loss": sum(loss.item() for loss in self.losses(samples))})["loss"]

    def losses(self, samples: Sequence[Sample]) -> Iterator[Tensor]:
        """Shares of the mean loss of the reply tokens, one for each of this process's passes."""
        batch = make_batch(samples, {})
        num_tokens = batch.mask.sum().item()
        split = partial(micro_batches, max_samples=self.sft.micro_batch_size)
        for each in passes(self.model, batch.ids, split, mask=batch.mask, team=self.team):
            nll = self.team.run(partial(reply_nll, self.model, each.packing))
            yield nll * (not each.is_spare) / num_tokens

    def save(self, folder: Path) -> None:
        """Adapters or whole weights, and the state of the optimizer."""
        model = self.team.full_model(self.model)
        if self.team.is_writer:
            check_finite(model.state_dict(), f"{folder.name}/model.safetensors")
            if has_adapter(model):
                save_adapter(model, folder)
            else:
                model.save_pretrained(folder)
        save_optimizer(self.optimizer, folder, self.team)

    def load_optimizer(self, folder: Path) -> None:
        self.optimizer.load_file(folder / OPTIMIZER_FILE, self.team)
        self.team.weights_changed()

    def close(self) -> None:
        """Nothing to do in this process."""
