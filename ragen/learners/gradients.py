"""Gradients of the parts of the actor's loss, part by part and bucket by bucket, without touching the actor.

Every bucket of samples comes in folds (whole groups). The gradient of a bucket is summed in float32 and measured
exactly; of each fold only a sketch is kept (sketches.py), so memory does not grow with the number of folds.

There are two ways to the same numbers. `_together`, where this process holds the model and has the memory: a pass
takes several folds, its activations serve all parts of the loss, and slices (modeling/slices.py) keep the gradients of
the folds apart. `_one_by_one`, for sharded models and where memory is short: a pass for each fold and part; two
gradients of full size exist at a time, the one that an update needs as well and the sum over the buckets. Ranks that
share a model hold a gathered weight at a time, and all signs of the sketches each.

Tested in tests/learners/test_gradients.py and tests/diagnostics/test_gradient_reporter.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

import torch
from torch import Tensor

from ragen.algorithms.masked import token_weights
from ragen.config.actor_rollout_ref import ActorConfig
from ragen.learners.actor import Actor
from ragen.learners.batch import Batch
from ragen.learners.sketches import SKETCH_SIZE, Flat, Sketch
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.load import free_memory
from ragen.modeling.packing import pack_apart
from ragen.modeling.slices import NotSliced, Slices
from ragen.modeling.team import gathered
from ragen.tracking.names import ALL_SAMPLES, LOSSES

logger = logging.getLogger(__name__)
COMPONENTS = tuple(LOSSES)
MAX_SLICES = 4
"""Folds of a pass; each holds a gradient of full size for a moment."""
ONE_BY_ONE = "Gradient analysis takes one part of the loss at a time, and a pass for each group"


@dataclass(kw_only=True, slots=True)
class Gradient:
    """What is known of the gradient of one part of the loss over one bucket."""

    norm: float
    loss: float
    sketches: Tensor
    """[folds, SKETCH_SIZE] They add up to the sketch of the bucket's gradient."""
    masses: Tensor
    """[folds] Tokens or sequences of each fold, whichever the loss is a mean over."""


Found = dict[str, dict[str, Gradient]]
"""Component -> bucket -> gradient."""
Progress = Callable[[str, Sequence[str], int], None]
"""Gets a bucket, components of the loss, and the number of samples whose gradients were added to theirs: 0 where it
begins, which it does again where a faster way has failed."""


def ignore(bucket: str, components: Sequence[str], num_samples: int) -> None:
    """Nobody watches."""


def active_components(config: ActorConfig) -> list[str]:
    """The parts of the loss that are on."""
    is_on = {"task": True, "entropy": config.entropy_coeff != 0, "kl": config.use_kl_loss}
    return [name for name in COMPONENTS if is_on[name]]


def component_gradients(
    actor: Actor, batch: Batch, buckets: Mapping[str, Sequence[Sequence[int]]], progress: Progress = ignore
) -> Found:
    """Component -> bucket -> gradient, with the bucket `all` for the whole batch; components that are off are missing.

    `buckets` holds the samples of each fold of each bucket; every sample is in exactly one. The loss of a bucket is
    the mean over the bucket in the sense of loss_agg_mode, so that of the batch is the weighted sum of the buckets'.
    """
    devices = [actor.device] if actor.device.type == "cuda" else []
    actor.model.train()
    try:
        with torch.random.fork_rng(devices=devices):
            return _by_the_fastest_way(actor, batch, buckets, active_components(actor.config), progress)
    finally:
        actor.model.eval()


def _by_the_fastest_way(
    actor: Actor,
    batch: Batch,
    buckets: Mapping[str, Sequence[Sequence[int]]],
    components: Sequence[str],
    progress: Progress,
) -> Found:
    """All components together, where the model can be sliced and there is the memory."""
    is_together = actor.team.is_alone and _has_room(actor, len(components))
    for max_slices in (MAX_SLICES, 1) if is_together else ():
        # The next way begins outside of `except`: the exception holds whatever the way that failed has computed.
        try:
            return _together(actor, batch, buckets, components, max_slices=max_slices, progress=progress)
        except NotSliced as reason:
            _say(f"Gradient analysis takes a pass for each group: {reason}.")
        except torch.OutOfMemoryError:
            _say(f"{ONE_BY_ONE}: faster ways ran out of memory.")
            break
    sketch = Sketch()
    return {name: _one_by_one(actor, batch, buckets, name, sketch, progress) for name in components}


def _has_room(actor: Actor, num_components: int) -> bool:
    """Whether what `_together` holds is no more than half of the free memory; the other half is for activations."""
    weights = actor.optimizer.weights.values()
    count, each = sum(weight.numel() for weight in weights), sum(weight.nbytes for weight in weights)
    # In float32: the bucket's and the batch's gradients of every component, and that of one fold. A byte for each sign.
    held = count * (4 * (2 * num_components + 1) + 1) + MAX_SLICES * each
    if held <= free_memory(actor.device) / 2:
        return True
    _say(f"{ONE_BY_ONE}: faster ways would hold {held / 2**30:.1f} GiB, and that is more than half of what is free.")
    return False


@cache
def _say(text: str) -> None:
    """Once in a process."""
    logger.warning(text)


def _together(
    actor: Actor,
    batch: Batch,
    buckets: Mapping[str, Sequence[Sequence[int]]],
    components: Sequence[str],
    *,
    max_slices: int,
    progress: Progress,
) -> Found:
    """All components from the same forward passes, several folds in each."""
    mode, horizon, room = actor.config.loss_agg_mode, batch.mask.shape[1], actor.room(batch)
    weights = list(actor.optimizer.weights.values())
    flat = Flat(weights)
    of_bucket, of_all = ({name: flat.zeros() for name in components} for _ in range(2))
    found: Found = {name: {} for name in components}
    for name, folds in buckets.items():
        bucket = _weighted(batch.select([index for fold in folds for index in fold]), mode, horizon)
        progress(name, components, 0)
        losses = {component: torch.zeros((), device=actor.device) for component in components}
        sketches = torch.zeros(len(components), len(folds), SKETCH_SIZE, device=actor.device)
        for total in of_bucket.values():
            total.zero_()
        for chosen in actor.fold_passes(bucket, list(map(len, folds)), room=room, max_folds=max_slices):
            micro = bucket.select([index for _, indices in chosen for index in indices])
            packing = pack_apart(
                [[bucket.ids[i] for i in indices] for _, indices in chosen], actor.device, mask=micro.mask
            )
            counts = [len(indices) for _, indices in chosen]
            with (
                packed_attention(actor.model, packing),
                Slices(actor.model, weights, packing, counts, micro.mask) as slices,
            ):
                terms, _ = actor.terms(micro, packing, slices)
                for row, component in enumerate(components):
                    losses[component] += terms[component].detach()
                    gradients = slices.gradients(terms[component], keep=component != components[-1])
                    for (fold, _), gradient in zip(chosen, gradients, strict=True):
                        of_bucket[component] += (filled := flat.fill(gradient))
                        sketches[row, fold] += flat.sketch(filled)
            progress(name, components, len(micro))
        masses = torch.tensor([_mass(bucket.select(indices), mode) for indices in _positions(folds)])
        for row, component in enumerate(components):
            of_all[component].add_(of_bucket[component], alpha=masses.sum().item() / _mass(batch, mode))
            # Fetched after the last fold: until then a GPU works on one pass while the CPU prepares the next.
            found[component][name] = Gradient(
                norm=flat.norm(of_bucket[component]).item(),
                loss=losses[component].item(),
                sketches=sketches[row].cpu(),
                masses=masses,
            )
    for component, rows in found.items():
        rows[ALL_SAMPLES] = _whole(rows, _mass(batch, mode), flat.norm(of_all[component]).item())
    return found


def _one_by_one(
    actor: Actor,
    batch: Batch,
    buckets: Mapping[str, Sequence[Sequence[int]]],
    component: str,
    sketch: Sketch,
    progress: Progress,
) -> dict[str, Gradient]:
    """One component, a fold at a time."""
    mode, horizon = actor.config.loss_agg_mode, batch.mask.shape[1]
    total_of_all = [torch.zeros_like(weight) for weight in actor.optimizer.masters.values()]
    found: dict[str, Gradient] = {}
    room = actor.room(batch)
    for name, folds in buckets.items():
        bucket = _weighted(batch.select([index for fold in folds for index in fold]), mode, horizon)
        progress(name, [component], 0)
        losses, sums, masses = [], [], []
        for indices in _positions(folds):
            part = bucket.select(indices)
            losses.append(_add_fold(actor, part, component, room=room))
            sums.append(sketch(actor.optimizer.gradients()))
            progress(name, [component], len(part))
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
    found[ALL_SAMPLES] = _whole(found, _mass(batch, mode), _norm(dict(enumerate(total_of_all))))
    return found


def _whole(buckets: Mapping[str, Gradient], mass: float, norm: float) -> Gradient:
    """The gradient of a batch of so many tokens or sequences, from those of its buckets."""
    parts = [((gradient.masses.sum() / mass).item(), gradient) for gradient in buckets.values()]
    return Gradient(
        norm=norm,
        loss=sum(share * gradient.loss for share, gradient in parts),
        sketches=torch.cat([share * gradient.sketches for share, gradient in parts]),
        masses=torch.cat([gradient.masses for _, gradient in parts]),
    )


def _weighted(bucket: Batch, mode: str, horizon: int) -> Batch:
    """The samples of a bucket with the weights of its mean."""
    bucket.weights = token_weights(bucket.mask, mode, horizon=horizon)
    bucket.mean_weights = token_weights(bucket.mask, "token-mean")
    return bucket


def _positions(folds: Sequence[Sequence[int]]) -> list[range]:
    """Where the samples of each fold are in a bucket that was selected fold by fold."""
    ends = list(accumulate(map(len, folds)))
    return [range(end - len(fold), end) for fold, end in zip(folds, ends, strict=True)]


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


def _norm(gradients: Mapping[int, Tensor]) -> float:
    norms = torch.stack(torch._foreach_norm(list(gradients.values())))
    return gathered(torch.linalg.vector_norm(norms)).item()
