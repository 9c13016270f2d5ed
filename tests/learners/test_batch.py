"""Batches: alignment and cutting."""

import math

import torch

from ragen.learners.batch import make_batch
from ragen.learners.learner import even_sizes, full_sizes, mini_batches, scatter
from ragen.types import Sample


def sample(ids, mask, spans, scores, group_id=0, member=0) -> Sample:
    logprobs = [-0.5 * m for m in mask]
    return Sample(
        group_id=group_id,
        member=member,
        input_ids=ids,
        loss_mask=mask,
        logprobs=logprobs,
        turn_spans=spans,
        turn_scores=scores,
    )


def test_scores_stand_at_the_end_of_their_replies():
    batch = make_batch([sample([1, 7, 8, 2, 9], [0, 1, 1, 0, 1], [(1, 3), (4, 5)], [0.5, 2.0])], {0: 1.5})
    assert batch.scores.tolist() == [[0, 0, 0.5, 0, 2.0]]
    assert batch.turn_ends.tolist() == [[0, 0, 1, 0, 1]]
    assert batch.engine_logprobs.tolist() == [[0, -0.5, -0.5, 0, -0.5]]
    assert batch.reward_std.tolist() == [1.5]


def test_samples_of_one_episode_share_its_number():
    turns = [sample([1, 2], [0, 1], [(1, 2)], [1.0], group_id=g, member=m) for g, m in ((3, 0), (3, 0), (3, 1), (4, 0))]
    assert make_batch(turns, {}).episodes.tolist() == [0, 0, 1, 2]


def test_a_selection_has_no_needless_padding():
    batch = make_batch([sample([1, 2], [0, 1], [(1, 2)], [1.0]), sample([1] * 9, [0] * 8 + [1], [(8, 9)], [2.0])], {})
    chosen = batch.select([0])
    assert chosen.mask.shape == (1, 2)
    assert chosen.ids == [[1, 2]]


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
