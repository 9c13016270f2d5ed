"""What actor and critic share: the walk over mini and micro batches, and saving."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragen.algorithms.masked import token_weights
from ragen.errors import NotFinite
from ragen.learners.batch import Batch
from ragen.learners.optimizer import Optimizer
from ragen.learners.saved import OPTIMIZER_FILE, Saved
from ragen.modeling.finite import describe, non_finite, save_tensors
from ragen.modeling.load import to_device
from ragen.modeling.lora import adapter_state, has_adapter, merged_state, plain_state
from ragen.modeling.packing import (
    Packing,
    by_beginning,
    micro_batches,
    neighbours,
    shared_with_previous,
    within_bounds,
)
from ragen.modeling.passes import passes
from ragen.modeling.team import SOLO, Split, Team
from ragen.seeding import Rng, fixed_hash
from ragen.tracking.names import SKIPPED_STEPS
from ragen.types import Metrics

MAX_LOST = 3
"""Updates in a row without any finite gradient that stop a run. Single steps are skipped, as verl does, and counted."""
ADVICE = "Lower the learning rate (optim.lr of the {}), or look at the rewards and advantages of that step."


def even_sizes(num_samples: int, size: int) -> list[int]:
    """As few parts as `size` allows, as equal as possible: every sample has about the same weight in an epoch.

    10 samples, size 4 -> [4, 3, 3]
    """
    count = -(-num_samples // size)
    each, rest = divmod(num_samples, count)
    return [each + (number < rest) for number in range(count)]


def full_sizes(num_samples: int, size: int) -> list[int]:
    """Full parts and what is left, as verl splits them.

    10 samples, size 4 -> [4, 4, 2]
    """
    return [min(size, num_samples - start) for start in range(0, num_samples, size)]


MINI_BATCH_SIZES: dict[str, Callable[[int, int], list[int]]] = {"even": even_sizes, "full": full_sizes}


def mini_batches(sizes: Sequence[int], *, num_epochs: int, shuffle: bool, seed: int) -> Iterator[list[int]]:
    """Indices of each optimizer step, in order or shuffled.

    sizes [3, 2] -> [0, 1, 2], [3, 4]
    """
    ends = list(accumulate(sizes))
    for epoch in range(num_epochs):
        order = list(range(sum(sizes)))
        if shuffle:
            Rng(seed, "mini batches", epoch).shuffle(order)
        yield from (order[end - size : end] for size, end in zip(sizes, ends, strict=True))


class Learner:
    """A model, its optimizer, and how it goes through a batch. `config` is the actor's or the critic's.

    `seed` and the step fix the order of shuffled mini batches.
    """

    def __init__(self, model: Any, config: Any, *, total_steps: int, seed: int = 0, team: Team = SOLO) -> None:
        self.model, self.config, self.seed, self.team = model, config, seed, team
        self.device = team.device_of(model)
        self.num_lost = 0
        """Updates in a row without any finite gradient."""
        self.optimizer = Optimizer(model, config.optim, grad_clip=config.grad_clip, total_steps=total_steps)

    def loss(self, batch: Batch, packing: Packing) -> tuple[Tensor, dict[str, float]]:
        """A micro batch's share of the loss of its mini batch, and its share of the metrics.

        The weights of the tokens belong to the mini batch, so shares simply add up.
        """
        raise NotImplementedError

    def train_on(self, batch: Batch, *, step: int) -> Metrics:
        """One optimizer step for each mini batch."""
        config = self.config
        self.model.train()
        sums: dict[str, float] = defaultdict(float)
        norms: list[float] = []
        horizon = batch.mask.shape[1]
        parts = list(
            mini_batches(
                MINI_BATCH_SIZES[config.mini_batch_sizes](len(batch), config.ppo_mini_batch_size),
                num_epochs=config.ppo_epochs,
                shuffle=config.shuffle,
                seed=fixed_hash(self.seed, step),
            )
        )
        for indices in parts:
            mini = batch.select(indices)
            mini.weights = token_weights(mini.mask, config.loss_agg_mode, horizon=horizon)
            mini.mean_weights = token_weights(mini.mask, "token-mean")
            for micro, packing in self.passes(mini):
                loss, shares = self.team.run(partial(self.loss, micro, packing))
                loss.backward()
                for name, share in shares.items():
                    sums[name] += share
            norms.append(self.optimizer.step(step))
        self.team.weights_changed()
        self.model.eval()
        finite = [norm for norm in norms if isfinite(norm)]
        self.check(step, is_lost=not finite)
        return {name: total / len(parts) for name, total in self.team.sum(sums).items()} | {
            "grad_norm": sum(finite) / max(1, len(finite)),
            "lr": self.optimizer.learning_rate(step),
            SKIPPED_STEPS: float(len(norms) - len(finite)),
        }

    def check(self, step: int, *, is_lost: bool) -> None:
        """Stop when weights are no numbers any more, or when update after update had no finite gradient at all."""
        name = self.role
        found = set(non_finite(self.optimizer.weights))
        totals = self.team.sum({key: float(key in found) for key in self.optimizer.weights})
        if names := [key for key, total in totals.items() if total]:
            raise NotFinite(
                f"The weights of the {name} are not finite after the update of step {step}: "
                f"{describe(names, len(totals))}. {ADVICE.format(name)}"
            )
        self.num_lost = self.num_lost + 1 if is_lost else 0
        if self.num_lost >= MAX_LOST:
            raise NotFinite(
                f"No gradient of the {name} was finite in {MAX_LOST} updates in a row, up to step {step}: nothing is "
                f"learned. {ADVICE.format(name)}"
            )

    def room(self, batch: Batch) -> tuple[int, ...]:
        """Tokens and sampled tokens of a micro batch of samples that each have the most of this batch."""
        return tuple(self.config.ppo_micro_batch_size_per_gpu * max(each) for each in zip(*_sizes(batch), strict=True))

    def passes(self, batch: Batch, *, room: Sequence[int] | None = None) -> Iterator[tuple[Batch, Packing]]:
        """The samples of each of this process's forward and backward passes.

        With the `room` of a batch that is updated on, a pass takes as many samples as fit into it: no more memory than
        an update, and fewer passes where most are shorter. Shared beginnings count in full, because attention reads
        them for each sample.
        """
        split = self._split(batch, room)
        for each in passes(self.model, batch.ids, split, mask=batch.mask, packings=batch.packings, team=self.team):
            micro = batch.select(each.indices)
            yield micro.weightless() if each.is_spare else micro, each.packing

    def fold_passes(
        self, batch: Batch, sizes: Sequence[int], *, room: Sequence[int], max_folds: int
    ) -> Iterator[list[tuple[int, list[int]]]]:
        """Numbers of folds and the indices of their samples that go through the model together.

        The batch holds folds of those `sizes`. A pass takes no more than one of an update on a batch with that `room`,
        and samples of a few folds; those of different folds share no beginnings.
        """
        split, ends = self._split(batch, room), list(accumulate(sizes))
        parts: list[tuple[int, list[int]]] = []
        costs: list[tuple[int, ...]] = []
        for fold, end in enumerate(ends):
            start = end - sizes[fold]
            for chosen in split(batch.ids[start:end]):
                indices = [start + i for i in chosen]
                parts.append((fold, indices))
                costs.append((1, *self._cost(batch, indices)))
        bounds = (self.config.ppo_max_token_len_per_gpu,) if self.config.use_dynamic_bsz else room
        for numbers in neighbours(costs, (max_folds, *bounds)):
            yield [parts[number] for number in numbers]

    def _split(self, batch: Batch, room: Sequence[int] | None) -> Split:
        config = self.config
        if config.use_dynamic_bsz:
            return partial(micro_batches, max_tokens=config.ppo_max_token_len_per_gpu)
        if room is not None:
            return partial(_that_fit, batch=batch, room=room)
        return partial(micro_batches, max_samples=config.ppo_micro_batch_size_per_gpu)

    def _cost(self, batch: Batch, indices: Sequence[int]) -> tuple[int, ...]:
        """What samples take of the bounds of a pass: tokens that are computed, or all tokens and the sampled ones."""
        if not self.config.use_dynamic_bsz:
            return tuple(map(sum, zip(*_sizes(batch.select(indices)), strict=True)))
        sequences = [batch.ids[i] for i in indices]
        return (sum(map(len, sequences)) - sum(shared_with_previous(sequences, by_beginning(sequences))),)

    @property
    def role(self) -> str:
        """actor, critic"""
        return type(self).__name__.lower()

    @property
    def saves_optimizer(self) -> bool:
        return "optimizer" in self.config.checkpoint.save_contents

    def saved(self, tokenizer: Any) -> Saved | None:
        """What a checkpoint holds now; all ranks take part, and those that do not write get nothing."""
        model = self.team.full_model(self.model)
        state = full_state(self.optimizer, self.team) if self.saves_optimizer else None
        if not self.team.is_writer:
            return None
        is_adapted = has_adapter(model)
        weights = merged_state(model) if is_adapted else model.state_dict()
        adapter = adapter_state(model) if is_adapted else None
        saved = Saved(model=model, tokenizer=tokenizer, weights=weights, adapter=adapter, optimizer=state)
        saved.check(self.role)
        return saved

    def saved_later(self, tokenizer: Any) -> Saved:
        """Tensors in the shapes of those that checkpoints will hold; only where one process has all of them."""
        model = self.model
        adapter = adapter_state(model) if has_adapter(model) else None
        state = self.optimizer.state_later() if self.saves_optimizer else None
        return Saved(model=model, tokenizer=tokenizer, weights=plain_state(model), adapter=adapter, optimizer=state)

    def save(self, folder: Path, tokenizer: Any) -> None:
        """A Hugging Face directory, and beside it what an exact resume needs."""
        saved = self.saved(tokenizer)
        if saved is not None:
            saved.write(folder)

    def load_optimizer(self, folder: Path) -> None:
        self.optimizer.load_file(folder / OPTIMIZER_FILE, self.team)
        self.team.weights_changed()


def _sizes(batch: Batch) -> list[tuple[int, int]]:
    """Tokens and sampled tokens of each sample."""
    return list(zip(batch.lengths, map(int, batch.mask.sum(-1).tolist()), strict=True))


def _that_fit(sequences: Sequence[Sequence[int]], *, batch: Batch, room: Sequence[int]) -> list[list[int]]:
    """Indices of some samples of a batch, in groups of at most so many tokens and sampled tokens."""
    # Found by their ids: a rank asks for its own samples only. Equal samples may differ in their masks.
    sizes: dict[tuple[int, ...], tuple[int, int]] = {}
    for ids, size in zip(map(tuple, batch.ids), _sizes(batch), strict=True):
        sizes[ids] = max(size, sizes.get(ids, size))
    return within_bounds(sequences, [sizes[tuple(ids)] for ids in sequences], room)


def full_state(optimizer: Optimizer, team: Team) -> dict[str, Tensor]:
    """The state of an optimizer; all ranks take part."""
    return team.full_tensors(optimizer.state(with_masters=team.is_rounded))


def save_optimizer(optimizer: Optimizer, folder: Path, team: Team) -> None:
    """All ranks take part, and one of them writes."""
    state = full_state(optimizer, team)
    if team.is_writer:
        save_tensors(state, folder / OPTIMIZER_FILE)


@torch.no_grad()
def score_batch(
    model: Any,
    batch: Batch,
    *,
    max_samples: int,
    score: Callable[[Packing], tuple[Tensor, ...]],
    team: Team = SOLO,
) -> list[Tensor]:
    """Scores without gradient, as [batch, seq] tensors on the CPU; `score` returns values of the sampled tokens."""
    split = partial(micro_batches, max_samples=max_samples)
    found = [
        (each, team.run(partial(score, each.packing)))
        for each in passes(model, batch.ids, split, mask=batch.mask, packings=batch.packings, team=team)
    ]
    results = [torch.zeros_like(batch.mask) for _ in found[0][1]]
    # Fetched only now: the CPU prepares a pass while the GPU is at work on the one before.
    for each, scores in found:
        if not each.is_spare:
            assert each.mask is not None
            for result, flat in zip(results, scores, strict=True):
                result[torch.tensor(each.indices), : each.mask.shape[1]] = scatter(flat.float().cpu(), each.mask)
    return team.sum_tensors(results)


def scored(tensor: Tensor | None, device: torch.device) -> Tensor:
    """A part of a scored batch, where the model computes."""
    assert tensor is not None, "the batch was not scored"
    return to_device(tensor, device)


def scatter(flat: Tensor, mask: Tensor) -> Tensor:
    """Values of the masked tokens back in [batch, seq], zeros elsewhere; differentiable. The mask is on the CPU.

    By index: the gradient of a masked scatter counts the mask first, for which the CPU would wait for a GPU.
    """
    index = to_device(mask.flatten().nonzero()[:, 0], flat.device)
    return flat.new_zeros(mask.numel()).index_copy(0, index, flat).view(mask.shape)
