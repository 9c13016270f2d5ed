"""Fine-tuning on demonstrations: the loss of the reply tokens, in packed passes, whole weights or LoRA."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragen.algorithms.entropy import head_logprobs
from ragen.env.rng import Rng
from ragen.sft.config import SftConfig
from ragen.types import Metrics, Sample
from ragen.workers.actor import masked_hidden
from ragen.workers.batch import Batch, make_batch, micro_batches
from ragen.workers.learner import OPTIMIZER_FILE
from ragen.workers.lora import has_adapter, save_adapter
from ragen.workers.model import logits_of, masked_targets
from ragen.workers.optimizer import Optimizer
from ragen.workers.packed import Packing, pack, packed_attention


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


def reply_nll(model: Any, batch: Batch, ids: Tensor, packing: Packing) -> Tensor:
    """Sum of the negative log-likelihoods of the reply tokens; inside `packed_attention`."""
    hidden = masked_hidden(model, batch, ids, packing)
    targets = masked_targets(batch.ids, batch.mask).to(hidden.device)
    logprobs, _ = head_logprobs(hidden, lambda states: logits_of(model, states), targets)
    return -logprobs.sum()


def packed_passes(
    model: Any, samples: Sequence[Sample], micro_batch_size: int
) -> Iterator[tuple[Batch, Tensor, Packing]]:
    """The samples in micro batches; the body of the loop runs inside `packed_attention`."""
    batch = make_batch(samples, {})
    device = next(model.parameters()).device
    for chosen in micro_batches(batch.ids, max_samples=micro_batch_size):
        micro = batch.select(chosen)
        ids, packing = pack(micro.ids, device, mask=micro.mask)
        with packed_attention(model, packing):
            yield micro, ids, packing


class Finetuner:
    """A model in supervised training. What it does follows from its weights, the step and the epoch alone."""

    def __init__(
        self, model: Any, sft: SftConfig, train: Sequence[Sample], val: Sequence[Sample], *, seed: int
    ) -> None:
        self.model, self.sft, self.train, self.val, self.seed = model, sft, train, val, seed
        self.total_steps = sum(len(self.batches(epoch)) for epoch in range(sft.epochs))
        # The cosine reaches zero one step after the last, which would otherwise do nothing.
        self.optimizer = Optimizer(model, sft.optim, grad_clip=sft.grad_clip, total_steps=self.total_steps + 1)

    def batches(self, epoch: int) -> list[list[Sample]]:
        return epoch_batches(self.train, batch_size=self.sft.batch_size, seed=self.seed, epoch=epoch)

    def update(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        """One optimizer step on the mean loss of all reply tokens of `samples`."""
        started = time.monotonic()
        num_tokens = sum(sum(sample.loss_mask) for sample in samples)
        total = 0.0
        self.model.train()
        for micro, ids, packing in packed_passes(self.model, samples, self.sft.micro_batch_size):
            loss = reply_nll(self.model, micro, ids, packing) / num_tokens
            loss.backward()
            total += loss.item()
        norm = self.optimizer.step(step)
        self.model.eval()
        seconds = time.monotonic() - started
        return {
            "sft/train_loss": total,
            "sft/grad_norm": norm,
            "sft/lr": self.optimizer.learning_rate(step),
            "sft/tokens_per_second": sum(len(sample.input_ids) for sample in samples) / seconds,
        }

    @torch.no_grad()
    def val_loss(self) -> float:
        """Mean loss of the reply tokens of the validation demonstrations."""
        num_tokens = sum(sum(sample.loss_mask) for sample in self.val)
        passes = packed_passes(self.model, self.val, self.sft.micro_batch_size)
        return sum(reply_nll(self.model, micro, ids, packing).item() for micro, ids, packing in passes) / num_tokens

    def save(self, folder: Path) -> None:
        """Adapters or whole weights, and the state of the optimizer."""
        if has_adapter(self.model):
            save_adapter(self.model, folder)
        else:
            self.model.save_pretrained(folder)
        save_file(self.optimizer.state(), folder / OPTIMIZER_FILE)

    def load_optimizer(self, folder: Path) -> None:
        self.optimizer.load_state(load_file(folder / OPTIMIZER_FILE))
