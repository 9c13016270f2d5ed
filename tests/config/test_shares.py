"""A total in given proportions, by largest remainders."""

import pytest

from ragen.config.shares import shares


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [([3, 1], 6, [5, 1]), ([1, 1], 3, [2, 1]), ([2, 6], 4, [1, 3]), ([5], 7, [7]), ([1, 1, 1], 2, [1, 1, 0])],
)
def test_shares_worked_by_hand(counts: list[int], total: int, expected: list[int]):
    assert shares(counts, total) == expected
