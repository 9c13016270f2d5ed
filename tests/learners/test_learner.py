"""The walk over mini batches."""

import math

import pytest
import torch

from ragen.learners.actor import Actor
from ragen.learners.batch import Batch, make_batch
from ragen.learners.learner import even_sizes, full_sizes, mini_batches, scatter
from ragen.types import Sample
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


def alike(num_own: int, num_sampled: int, *, begin: list[int]) -> Sample:
    """A sample that begins like others and ends with sampled tokens."""
    ids = begin + [3 + num_own] * num_own
    mask = [0] * (len(ids) - num_sampled) + [1] * num_sampled
    return Sample(
        group_id=0,
        member=num_own,
        input_ids=ids,
        loss_mask=mask,
        logprobs=[-1.0 * m for m in mask],
        turn_spans=[(len(ids) - num_sampled, len(ids))],
        turn_scores=[0.0],
    )


@pytest.mark.parametrize(("num_longest", "num_sampled"), [(44, 1), (60, 12)])
def test_passes_with_the_room_of_the_longest_samples_take_no_more_than_those(num_longest, num_sampled):
    """Twelve samples share their first 20 tokens, which attention and the output layer see for each of them."""
    begin = list(range(5, 25))
    short = [alike(number, num_sampled if number > 9 else 1, begin=begin) for number in range(1, 13)]
    batch = make_batch([*short, alike(num_longest - 20, 6, begin=begin)], {})
    actor = Actor(random_model("qwen2"), actor_config(ppo_micro_batch_size_per_gpu=2), temperature=1.0, total_steps=1)
    found = [micro for micro, _ in actor.passes(batch, room=actor.room(batch))]
    assert sorted(length for micro in found for length in micro.lengths) == sorted(batch.lengths)
    assert all(sum(micro.lengths) <= 2 * num_longest for micro in found)
    assert all(micro.mask.sum() <= 2 * batch.mask.sum(-1).max() for micro in found)
    assert len(found) <= len(list(actor.passes(batch)))
    fold = batch.select([0, 1, 2])
    assert [len(micro) for micro, _ in actor.passes(fold, room=actor.room(batch))] == [3], "more than two short ones"


def test_equal_samples_count_with_the_most_sampled_tokens():
    begin = list(range(5, 25))
    one, most = alike(8, 1, begin=begin), alike(8, 8, begin=begin)
    batch = make_batch([one, most, one, most], {})
    actor = Actor(random_model("qwen2"), actor_config(ppo_micro_batch_size_per_gpu=2), temperature=1.0, total_steps=1)
    assert all(micro.mask.sum() <= 16 for micro, _ in actor.passes(batch, room=actor.room(batch)))


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
