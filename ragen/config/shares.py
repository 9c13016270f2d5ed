"""A total in given proportions."""

from collections.abc import Sequence


def shares(counts: Sequence[int], total: int) -> list[int]:
    """`total` in the proportions of `counts`, by largest remainders.

    [3, 1], 6 -> [5, 1]: 4.5 and 1.5, and the first of equal remainders wins
    """
    exact = [total * count / sum(counts) for count in counts]
    whole = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: whole[index] - exact[index])
    for index in by_remainder[: total - sum(whole)]:
        whole[index] += 1
    return whole
