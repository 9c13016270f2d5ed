"""How work is shared among ranks."""

import pytest

from ragen.distributed.team import assign_to_ranks


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("is_balanced", [True, False])
def test_every_sample_goes_to_one_rank(num_ranks, is_balanced):
    sequences = [[i % 3] * (1 + 7 * i % 5) for i in range(6)]
    parts = assign_to_ranks(sequences, num_ranks, is_balanced=is_balanced)
    assert len(parts) == num_ranks
    assert sorted(index for part in parts for index in part) == list(range(6))


def test_balanced_ranks_have_similar_numbers_of_tokens():
    sequences = [[i] * length for i, length in enumerate([90, 10, 10, 10, 10, 50])]
    parts = assign_to_ranks(sequences, 2, is_balanced=True)
    assert [sum(len(sequences[i]) for i in part) for part in parts] == [90, 90]
    assert [len(part) for part in assign_to_ranks(sequences, 2, is_balanced=False)] == [3, 3]


def test_samples_with_a_common_beginning_stay_together():
    sequences = [[1, 1, n] for n in range(4)] + [[2, 2, n] for n in range(4)]
    mixed = [sequences[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert assign_to_ranks(mixed, 2, is_balanced=True) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_a_common_beginning_is_work_only_once():
    """Four samples of 110 tokens that share 100 are 140 tokens of work, less than three others of 50."""
    group = [[1] * 100 + [n] * 10 for n in range(2, 6)]
    others = [[n] * 50 for n in range(6, 9)]
    assert assign_to_ranks(group + others, 2, is_balanced=True) == [[0, 1, 2, 3], [4, 5, 6]]
    assert assign_to_ranks([[7] * 60] * 3, 2, is_balanced=True) == [[0], [1, 2]], "equal samples, too"
