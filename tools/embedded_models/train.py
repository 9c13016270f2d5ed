"""Supervised training on demonstrations: next-token loss on the replies only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ragen.seeding import Rng
from ragen.types import Sample
from tools.embedded_models.muon import Muon


def batches(samples: Sequence[Sample], *, max_tokens: int, rng: Rng) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in random order: ids and labels [batch, seq], sequences of similar length together.

    Padding stands on the right, where causal attention never looks from a real token; its label is -100.
    """
    order = list(range(len(samples)))
    rng.shuffle(order)
    order.sort(key=lambda i: len(samples[i].input_ids) // 16)  # stable: random inside a length class
    chunks: list[list[int]] = [[]]
    for i in order:
        if chunks[-1] and (len(chunks[-1]) + 1) * len(samples[i].input_ids) > max_tokens:
            chunks.append([])
        chunks[-1].append(i)
    rng.shuffle(chunks)
    for chunk in chunks:
        width = max(len(samples[i].input_ids) for i in chunk)
        ids = torch.zeros(len(chunk), width, dtype=torch.long)
        labels = torch.full((len(chunk), width), -100)
        for row, i in enumerate(chunk):
            tokens = torch.tensor(samples[i].input_ids)
            ids[row, : len(tokens)] = tokens
            labels[row, : len(tokens)] = torch.where(torch.tensor(samples[i].loss_mask) == 1, tokens, -100)
        yield ids, labels


def reply_loss(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood of the reply tokens."""
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    is_reply = targets != -100
    logits = model.get_output_embeddings()(hidden[is_reply])
    return cross_entropy(logits.float(), targets[is_reply])


def optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings, norms and biases."""
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    others = [p for p in model.parameters() if p.ndim != 2 or p is embedding]
    return [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=3e-3, weight_decay=0.0)]


def train(
    model: Any,
    next_samples: Callable[[int], Sequence[Sample]],
    *,
    num_epochs: int,
    max_tokens: int,
    seed: int,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> None:
    """Train for `num_epochs` rounds; `next_samples(epoch)` gives the data of a round, fresh or the same.

    The learning rates fall to zero along a cosine, after a short warm-up.
    """
    opts = optimizers(model)
    peaks = [[group["lr"] for group in opt.param_groups] for opt in opts]
    rng = Rng(seed, "sft-order")
    model.train()
    for epoch in range(num_epochs):
        epoch_batches = list(batches(next_samples(epoch), max_tokens=max_tokens, rng=rng))
        total = 0.0
        for step, (ids, labels) in enumerate(epoch_batches):
            progress = (epoch + step / len(epoch_batches)) / num_epochs
            scale = min(1.0, progress / 0.02 + 0.01) * 0.5 * (1 + math.cos(math.pi * progress))
            for opt, peak in zip(opts, peaks, strict=True):
                for group, lr in zip(opt.param_groups, peak, strict=True):
                    group["lr"] = lr * scale
            loss = reply_loss(model, ids, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for opt in opts:
                opt.step()
                opt.zero_grad(set_to_none=True)
            total += loss.item()
        on_epoch(epoch, total / len(epoch_batches))
    model.eval()
