"""The walk over mini batches."""

import math

import pytest
import torch

from ragen.learners.actor import Actor
from ragen.learners.batch import Batch
from ragen.learners.learner import even_sizes, full_sizes, mini_batches, scatter
from tests.engine.families import random_model
from tests.learners.batches import actor_config, random_batch


def test_every_sample_is_in_exactly_one_mini_batch_of_an_epoch():
    parts = list(mini_batches([2, 2, 1], num_epochs=1, shuffle=False, seed=0))
    assert parts == [[0, 1], [2, 3], [4]]
    shuffled = list(mini_batches([2, 2, 1], num_epochs=2, shuffle=True, seed=0))
    for epoch in (shuffled[:3], shuffled[3:]):
        assert sorted(index for part in epoch for index in part) == [0, 1, 2, 3, 4]
    assert shuffled[:3] != shuffled[3:]


def test_even_mini_batches_differ_by_one_sample_at_most():
    assert even_sizes(10, 4) == [4, 3, 3]
    assert even_sizes(80, 64) == [40, 40]
    assert even_sizes(3, 4) == [3]
    for num_samples in range(1, 60):
        for size in range(1, 20):
            sizes = even_sizes(num_samples, size)
            assert sum(sizes) == num_samples and len(sizes) == math.ceil(num_samples / size)
            assert max(sizes) - min(sizes) <= 1 and max(sizes) <= size


def test_full_mini_batches_leave_a_smaller_last_one():
    assert full_sizes(10, 4) == [4, 4, 2]
    assert full_sizes(80, 64) == [64, 16]
    assert full_sizes(3, 4) == [3]


def test_scattered_values_stand_where_the_mask_is():
    mask = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert scatter(torch.tensor([3.0, 4.0]), mask).tolist() == [[0, 3], [4, 0]]


@pytest.mark.parametrize(("sizes", "expected"), [("even", [3, 2, 2]), ("full", [3, 3, 1])])
def test_mini_batches_are_even_or_full(sizes, expected):
    config = actor_config(mini_batch_sizes=sizes, ppo_micro_batch_size_per_gpu=7)
    actor = Actor(random_model("qwen2"), config, temperature=1.0, total_steps=10)
    found = seen_batches(actor)
    actor.train_on(random_batch(7), step=1)
    assert [len(batch) for batch in found] == expected


def seen_batches(actor: Actor) -> list[Batch]:
    """The micro batches that the loss is asked for, as they come."""
    found: list[Batch] = []
    loss = actor.loss

    def watched(batch, packing):
        found.append(batch)
        return loss(batch, packing)

    actor.loss = watched
    return found


def test_shuffled_mini_batches_depend_on_the_seed_and_on_the_step():
    def order(seed: int, step: int) -> list[list[int]]:
        config = actor_config(shuffle=True, ppo_micro_batch_size_per_gpu=7)
        actor = Actor(random_model("qwen2"), config, temperature=1.0, total_steps=10, seed=seed)
        found = seen_batches(actor)
        actor.train_on(random_batch(7), step=step)
        return [sorted(batch.lengths) for batch in found]

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(2, 1) != order(2, 2)
