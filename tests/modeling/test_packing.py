"""Packing: what stands where in the row, and what goes together."""

import torch

from ragen.modeling.packing import MIN_SHARED, by_length, micro_batches, pack, within_bounds
from tests.modeling.sequences import CPU, family_tree, tokens


def test_positions_start_anew_in_every_sequence():
    packing = pack([[5, 6, 7], [8]], torch.device("cpu"))
    assert packing.ids.tolist() == [[5, 6, 7, 8]]
    assert packing.position_ids.tolist() == [[0, 1, 2, 0]]
    assert packing.to_padded.tolist() == [[0, 1, 2], [3, 0, 0]]
    assert packing.to_packed.tolist() == [0, 1, 2, 3]


def test_sampled_tokens_are_known_with_the_states_before_them():
    mask = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    packing = pack([[5, 6, 7], [8, 9]], torch.device("cpu"), mask=mask)
    assert packing.sampled.tolist() == [0, 1, 3]
    assert packing.targets.tolist() == [6, 7, 9]


def test_a_common_beginning_stands_in_the_row_once():
    prompt = list(range(3, 3 + MIN_SHARED))
    packing = pack([[*prompt, 50, 51], [*prompt, 60]], CPU)
    assert packing.ids.tolist() == [[*prompt, 50, 51, 60]]
    assert packing.shared == [0, MIN_SHARED]
    assert packing.position_ids[0].tolist() == [*range(MIN_SHARED + 2), MIN_SHARED]
    assert packing.to_padded[1, : MIN_SHARED + 1].tolist() == [*range(MIN_SHARED), MIN_SHARED + 2]


def test_every_sequence_can_be_read_from_the_row():
    sequences = family_tree()
    packing = pack(sequences, CPU)
    assert packing.ids.shape[1] == 20 + 9 + 6 + 5 + 30 + MIN_SHARED + 4 + 2 + 11 + 1 + MIN_SHARED + 2
    for row, sequence in enumerate(sequences):
        indices = packing.to_padded[row, : len(sequence)]
        assert packing.ids[0, indices].tolist() == sequence
        assert packing.position_ids[0, indices].tolist() == list(range(len(sequence)))
    assert packing.ids[0].tolist() == [
        token for sequence, count in zip(sequences, packing.shared, strict=True) for token in sequence[count:]
    ]


def test_micro_batches_put_common_beginnings_together():
    assert micro_batches([[5, 6], [1], [5, 7], [2]], max_samples=2) == [[1, 3], [0, 2]]
    assert micro_batches([[5, 6], [1], [5, 7], [2]], max_tokens=3) == [[1, 3], [0], [2]]


def test_groups_stay_together_in_micro_batches():
    first, second = tokens(20, seed=0), tokens(20, seed=1)
    first, second = sorted((first, second))
    mixed = [[*second, 5], [*first, 5, 6, 7], [*second, 6], [*first, 8]]
    assert micro_batches(mixed, max_samples=2) == [[1, 3], [0, 2]]
    # 23 + 1 tokens, and then 21 + 1.
    assert micro_batches(mixed, max_tokens=24) == [[1, 3], [0, 2]]
    assert micro_batches(mixed, max_tokens=23) == [[1], [3], [0, 2]]
    assert micro_batches(mixed, max_tokens=1) == [[1], [3], [0], [2]]


def test_groups_stay_within_all_their_bounds():
    sequences, costs = [[5, 6], [1], [5, 7]], [[2, 1], [1, 1], [2, 1]]
    assert within_bounds(sequences, costs, [4, 2]) == [[1, 0], [2]]
    assert within_bounds(sequences, costs, [4, 3]) == [[1, 0], [2]], "tokens"
    assert within_bounds(sequences, costs, [5, 2]) == [[1, 0], [2]], "the other cost"
    assert within_bounds(sequences, costs, [5, 3]) == [[1, 0, 2]]
    assert within_bounds(sequences, costs, [1, 1]) == [[1], [0], [2]], "each alone, even beyond the bounds"
    assert within_bounds([], [], [4]) == []


def test_batches_by_length_put_similar_lengths_together():
    assert by_length([5, 1, 4, 2], max_samples=2, max_tokens=9) == [[1, 3], [2, 0]]
    assert by_length([5, 1, 4, 2], max_samples=4, max_tokens=6) == [[1, 3], [2], [0]]
