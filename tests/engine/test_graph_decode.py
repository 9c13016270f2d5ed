"""Sizes of the captured graphs; importing them needs Triton."""

import pytest


def test_the_ladder_of_batch_sizes_pads_by_at_most_half():
    pytest.importorskip("triton")
    from ragen.engine.graph.decode import batch_ladder, rung

    assert batch_ladder(200) == [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 200]
    assert batch_ladder(3) == [1, 2, 3]
    assert batch_ladder(1) == [1]
    ladder = batch_ladder(512)
    assert all((rung(ladder, size) or 0) <= 2 * size for size in range(1, 513))
    assert rung(ladder, 513) is None
