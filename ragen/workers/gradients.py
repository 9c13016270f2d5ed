"""Gradients of the parts of the actor's loss, part by part and bucket by bucket, without touching the actor.

Every bucket of samples comes in folds (whole groups). The gradient of a bucket is summed in float32 and measured
exactly; of each fold only a sketch is kept, a few thousand numbers from which lengths and angles between folds,
buckets and parts follow to about 2 %. So two gradients of full size exist at a time, however many folds there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algorithms.masked import token_weights
from ragen.env.rng import fixed_hash
from ragen.workers.actor import Actor
from ragen.workers.batch import Batch
from ragen.workers.packed import pack, packed_attention

COMPONENTS = ("task", "entropy", "kl")
SKETCH_SIZE = 4099
"""Numbers in a sketch: lengths are off by about sqrt(2 / 4099) / 2 = 1.1 %, cosines by 0.016. A prime, so that no
dimension of a model falls into the same place again and again."""


@dataclass(kw_only=True, slots=True)
class Gradient:
    """What is known of the gradient of one part of the loss over one bucket."""

    norm: float
    loss: float
    sketches: Tensor
    """[folds, SKETCH_SIZE] They add up to the sketch of the bucket's gradient."""
    masses: Tensor
    """[folds] Tokens or sequences of each fold, whichever the loss is a mean over."""


def component_gradients(
    actor: Actor, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, dict[str, Gradient]]:
    """Component -> bucket -> gradient, with the bucket `all` for the whole batch; components that are off are missing.

    `buckets` holds the samples of each fold of each bucket; every sample is in exactly one. The loss of a bucket is
    the mean over the bucket in the sense of loss_agg_mode, so that of the batch is the weighted sum of the buckets'.
    """
    config = actor.config
    is_on = {"task": True, "entropy": config.entropy_coeff != 0, "kl": config.use_kl_loss}
    devices = [actor.device] if actor.device.type == "cuda" else []
    actor.model.train()
    try:
        with torch.random.fork_rng(devices=devices):
            return {name: _all_buckets(actor, batch, buckets, name) for name in COMPONENTS if is_on[name]}
    finally:
        actor.model.eval()


def _all_buckets(
    actor: Actor, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], component: str
) -> dict[str, Gradient]:
    mode, horizon = actor.config.loss_agg_mode, batch.mask.shape[1]
    weights = [weight for weight in actor.model.parameters() if weight.requires_grad]
    whole = _zeros(weights)
    found: dict[str, Gradient] = {}
    for name, folds in buckets.items():
        bucket = batch.select([index for fold in folds for index in fold])
        bucket.weights = token_weights(bucket.mask, mode, horizon=horizon)
        bucket.mean_weights = token_weights(bucket.mask, "token-mean")
        total, loss, start = _zeros(weights), 0.0, 0
        sketches, masses = [], []
        for fold in folds:
            part = bucket.select(range(start, start + len(fold)))
            start += len(fold)
            fold_loss, sketch = _add_fold(actor, part, component, weights, total)
            loss += fold_loss
            sketches.append(sketch)
            masses.append(_mass(part, mode))
        found[name] = Gradient(
            norm=_norm(total), loss=loss, sketches=torch.stack(sketches), masses=torch.tensor(masses)
        )
        torch._foreach_add_(whole, total, alpha=sum(masses) / _mass(batch, mode))
    shares = [(gradient.masses.sum() / _mass(batch, mode)).item() for gradient in found.values()]
    parts = list(zip(shares, found.values(), strict=True))
    found["all"] = Gradient(
        norm=_norm(whole),
        loss=sum(share * gradient.loss for share, gradient in parts),
        sketches=torch.cat([share * gradient.sketches for share, gradient in parts]),
        masses=torch.cat([gradient.masses for _, gradient in parts]),
    )
    return found


def _zeros(weights: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]


def _mass(batch: Batch, loss_agg_mode: str) -> float:
    """What a mean over the batch divides by: its sequences, or its tokens."""
    lengths = batch.mask.sum(-1)
    return float((lengths > 0).sum() if loss_agg_mode.startswith("seq") else lengths.sum())


def _add_fold(
    actor: Actor, fold: Batch, component: str, weights: Sequence[Tensor], total: list[Tensor]
) -> tuple[float, Tensor]:
    """Add a fold's gradient to `total`; its loss and its sketch."""
    sketch, loss = torch.zeros(SKETCH_SIZE, device=actor.device), 0.0
    for chosen in actor.micro_batches(fold):
        micro = fold.select(chosen)
        ids, packing = pack(micro.ids, actor.device)
        with packed_attention(actor.model, packing):
            term = actor.terms(micro, ids, packing)[0][component]
            # Not backward(): that would leave gradients in the weights, and the optimizer collects those.
            gradients = torch.autograd.grad(term, weights, allow_unused=True)
        loss += term.item()
        for place, gradient in enumerate(gradients):
            if gradient is not None:
                total[place] += gradient
                sketch += sketch_of(gradient, place)
    return loss, sketch.cpu()


def sketch_of(tensor: Tensor, place: int) -> Tensor:
    """A random linear map to SKETCH_SIZE numbers that keeps lengths; `place` numbers the weight.

    The entries get random signs, fixed by `place`, and every SKETCH_SIZE-th one is summed (count sketch, Charikar et
    al. 2002).
    """
    flat = tensor.detach().flatten()
    generator = torch.Generator(flat.device).manual_seed(fixed_hash("gradient sketch", place) % 2**63)
    signs = torch.randint(0, 2, flat.shape, generator=generator, device=flat.device, dtype=torch.int8)
    signed = flat.float() * (2 * signs - 1)
    return torch.nn.functional.pad(signed, (0, -len(signed) % SKETCH_SIZE)).view(-1, SKETCH_SIZE).sum(0)


def _norm(gradient: Sequence[Tensor]) -> float:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradient)))).item()
