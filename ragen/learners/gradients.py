"""Gradients of the parts of the actor's loss, part by part and bucket by bucket, without touching the actor.

Every bucket of samples comes in folds (whole groups). The gradient of a bucket is summed in float32 and measured
exactly; of each fold only a sketch is kept, a few thousand numbers from which lengths and angles between folds,
buckets and parts follow to about 2 %. So two gradients of full size exist at a time, however many folds there are:
the one that an update needs as well, and the sum over the buckets. The signs of the sketches, a byte for each weight,
are there for the whole analysis; ranks that share a model hold a gathered weight at a time, and all signs each.

Tested in tests/diagnostics/test_gradient_reporter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ragen.algorithms.masked import token_weights
from ragen.config.actor_rollout_ref import ActorConfig
from ragen.learners.actor import Actor
from ragen.learners.batch import Batch
from ragen.modeling.team import gathered
from ragen.seeding import fixed_hash
from ragen.tracking.names import ALL_SAMPLES, LOSSES

COMPONENTS = tuple(LOSSES)
SKETCH_SIZE = 4099
"""Numbers in a sketch: lengths are off by about sqrt(2 / 4099) / 2 = 1.1 %, cosines by 0.016. A prime, so that no
dimension of a model falls onto the same number again and again."""


@dataclass(kw_only=True, slots=True)
class Gradient:
    """What is known of the gradient of one part of the loss over one bucket."""

    norm: float
    loss: float
    sketches: Tensor
    """[folds, SKETCH_SIZE] They add up to the sketch of the bucket's gradient."""
    masses: Tensor
    """[folds] Tokens or sequences of each fold, whichever the loss is a mean over."""


Progress = Callable[[str, int], None]
"""Gets a component of the loss and the number of samples whose gradient was added to it."""


def ignore(component: str, num_samples: int) -> None:
    """Nobody watches."""


def active_components(config: ActorConfig) -> list[str]:
    """The parts of the loss that are on."""
    is_on = {"task": True, "entropy": config.entropy_coeff != 0, "kl": config.use_kl_loss}
    return [name for name in COMPONENTS if is_on[name]]


def component_gradients(
    actor: Actor, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], progress: Progress = ignore
) -> dict[str, dict[str, Gradient]]:
    """Component -> bucket -> gradient, with the bucket `all` for the whole batch; components that are off are missing.

    `buckets` holds the samples of each fold of each bucket; every sample is in exactly one. The loss of a bucket is
    the mean over the bucket in the sense of loss_agg_mode, so that of the batch is the weighted sum of the buckets'.
    """
    devices = [actor.device] if actor.device.type == "cuda" else []
    actor.model.train()
    try:
        with torch.random.fork_rng(devices=devices):
            sketch, names = Sketch(), active_components(actor.config)
            return {name: _all_buckets(actor, batch, buckets, name, sketch, partial(progress, name)) for name in names}
    finally:
        actor.model.eval()


def _all_buckets(
    actor: Actor,
    batch: Batch,
    buckets: Mapping[str, Sequence[Sequence[int]]],
    component: str,
    sketch: Sketch,
    progress: Callable[[int], None],
) -> dict[str, Gradient]:
    mode, horizon = actor.config.loss_agg_mode, batch.mask.shape[1]
    total_of_all = [torch.zeros_like(weight) for weight in actor.optimizer.masters.values()]
    found: dict[str, Gradient] = {}
    room = actor.room(batch)
    progress(0)
    for name, folds in buckets.items():
        bucket = batch.select([index for fold in folds for index in fold])
        bucket.weights = token_weights(bucket.mask, mode, horizon=horizon)
        bucket.mean_weights = token_weights(bucket.mask, "token-mean")
        start = 0
        losses, sums, masses = [], [], []
        for fold in folds:
            part = bucket.select(range(start, start + len(fold)))
            start += len(fold)
            losses.append(_add_fold(actor, part, component, room=room))
            sums.append(sketch(actor.optimizer.gradients()))
            progress(len(fold))
            masses.append(_mass(part, mode))
        total = actor.optimizer.gradients()
        # Fetched after the last fold: until then a GPU works on one while the CPU prepares the next.
        found[name] = Gradient(
            norm=_norm(total),
            loss=sum(actor.team.sum({"loss": sum(map(float, terms))})["loss"] for terms in losses),
            sketches=_differences(torch.stack(sums)).cpu(),
            masses=torch.tensor(masses),
        )
        share = sum(masses) / _mass(batch, mode)
        for number, gradient in total.items():
            total_of_all[number].add_(gradient, alpha=share)
        actor.optimizer.clear()
    shares = [(gradient.masses.sum() / _mass(batch, mode)).item() for gradient in found.values()]
    parts = list(zip(shares, found.values(), strict=True))
    found[ALL_SAMPLES] = Gradient(
        norm=_norm(dict(enumerate(total_of_all))),
        loss=sum(share * gradient.loss for share, gradient in parts),
        sketches=torch.cat([share * gradient.sketches for share, gradient in parts]),
        masses=torch.cat([gradient.masses for _, gradient in parts]),
    )
    return found


def _add_fold(actor: Actor, fold: Batch, component: str, *, room: Sequence[int]) -> list[Tensor]:
    """Add a fold's gradient to those of the optimizer, which steps are made from; the loss of each pass."""
    losses = []
    for micro, packing in actor.passes(fold, room=room):
        terms, _ = actor.team.run(partial(actor.terms, micro, packing))
        terms[component].backward()
        losses.append(terms[component].detach())
    return losses


def _differences(sums: Tensor) -> Tensor:
    """Of each row to the one before it, the first to zero, [rows, numbers]."""
    return sums.diff(dim=0, prepend=torch.zeros_like(sums[:1]))


def _mass(batch: Batch, loss_agg_mode: str) -> float:
    """What a mean over the batch divides by: its sequences, or its tokens."""
    lengths = batch.mask.sum(-1)
    return float((lengths > 0).sum() if loss_agg_mode.startswith("seq") else lengths.sum())


class Sketch:
    """Sketches of gradients; the signs, a byte for each weight, are drawn for the first one and kept for the others."""

    def __init__(self) -> None:
        self._signs: dict[int, Tensor] = {}

    def __call__(self, gradients: Mapping[int, Tensor]) -> Tensor:
        """Of the gradients of all weights, by number."""
        found = []
        for number, gradient in gradients.items():
            whole = gathered(gradient)
            if number not in self._signs:
                self._signs[number] = signs_of(whole, number)
            found.append(sketch_of(whole, self._signs[number]))
        return torch.stack(found).sum(0)


def signs_of(tensor: Tensor, number: int) -> Tensor:
    """1 or -1 for each entry, fixed by `number`, that of the weight."""
    generator = torch.Generator(tensor.device).manual_seed(fixed_hash("gradient sketch", number) % 2**63)
    shape = (tensor.numel(),)
    return torch.randint(0, 2, shape, generator=generator, device=tensor.device, dtype=torch.int8).mul_(2).sub_(1)


def sketch_of(tensor: Tensor, signs: Tensor) -> Tensor:
    """A random linear map to SKETCH_SIZE numbers that keeps lengths.

    The entries get their signs, and every SKETCH_SIZE-th one is summed (count sketch, Charikar et al. 2002).
    """
    signed = tensor.detach().flatten().float() * signs
    return torch.nn.functional.pad(signed, (0, -len(signed) % SKETCH_SIZE)).view(-1, SKETCH_SIZE).sum(0)


def _norm(gradients: Mapping[int, Tensor]) -> float:
    norms = torch.stack(torch._foreach_norm(list(gradients.values())))
    return gathered(torch.linalg.vector_norm(norms)).item()
