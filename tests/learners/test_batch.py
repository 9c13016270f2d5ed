"""Batches: what stands where, and what is selected."""

import pickle
from dataclasses import replace

import pytest
import torch

from ragen.learners.batch import make_batch
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


@pytest.mark.parametrize("name", ["loss_mask", "logprobs", "entropies"])
def test_a_sample_without_a_value_for_each_token_is_refused(name):
    whole = replace(sample([1, 7, 8], [0, 1, 1], [(1, 3)], [0.5]), entropies=[0.0, 0.1, 0.1])
    longer = replace(sample([1] * 5, [0, 1, 1, 1, 1], [(1, 5)], [0.5]), entropies=[0.0] * 5)
    short = replace(whole, **{name: getattr(whole, name)[:-1]})
    with pytest.raises(AssertionError, match="another number of values than of tokens"):
        make_batch([short, longer], {})


def test_samples_of_one_episode_share_its_number():
    turns = [sample([1, 2], [0, 1], [(1, 2)], [1.0], group_id=g, member=m) for g, m in ((3, 0), (3, 0), (3, 1), (4, 0))]
    assert make_batch(turns, {}).episodes.tolist() == [0, 0, 1, 2]


def test_a_selection_has_no_needless_padding():
    batch = make_batch([sample([1, 2], [0, 1], [(1, 2)], [1.0]), sample([1] * 9, [0] * 8 + [1], [(8, 9)], [2.0])], {})
    chosen = batch.select([0])
    assert chosen.mask.shape == (1, 2)
    assert chosen.ids == [[1, 2]]


def test_a_selection_without_weight_has_the_same_samples():
    batch = make_batch([sample([1, 2], [0, 1], [(1, 2)], [1.0])], {})
    batch.weights = batch.mean_weights = torch.ones(1, 2)
    spare = batch.weightless()
    assert (spare.ids, spare.weights.tolist(), batch.weights.tolist()) == (batch.ids, [[0, 0]], [[1, 1]])


def test_selections_share_what_passes_prepared_and_other_processes_do_not():
    batch = make_batch([sample([1, 2], [0, 1], [(1, 2)], [1.0]), sample([3, 4], [0, 1], [(1, 2)], [1.0])], {})
    packing = batch.packings.pack(batch.select([1]).ids, torch.device("cpu"), mask=batch.mask[[1]])
    again = batch.select([1])
    assert again.packings.pack(again.ids, torch.device("cpu"), mask=again.mask) is packing
    assert pickle.loads(pickle.dumps(batch)).packings is not batch.packings
