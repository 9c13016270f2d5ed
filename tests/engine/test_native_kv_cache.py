"""Keys and values of many sessions, written and read back."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ragen.engine.native.kv_cache import TIME_BLOCK, RowCache
from ragen.modeling.attention.cached import CACHED, Step


def small_cache(num_rows: int, num_columns: int = 10) -> RowCache:
    cache = RowCache(device=torch.device("cpu"), dtype=torch.float32, max_rows=8, max_len=4 * TIME_BLOCK)
    cache.reserve(num_rows, num_columns)
    return cache


def write(cache: RowCache, values: list[list[float]], *, start: int, rows: list[int] | None = None) -> Tensor:
    """One layer, head and dimension: these numbers as keys from a column on; returns what the model gets to see."""
    new = torch.tensor(values)[:, None, :, None]  # [batch, head, queries, dim]
    positions = torch.arange(start, start + len(values[0])).expand(len(values), -1)
    index = None if rows is None else torch.tensor(rows)
    step = Step(rows=index, positions=positions, num_keys=start + len(values[0]))
    with CACHED.serving(SimpleNamespace(_attn_implementation_internal="sdpa"), step):
        return cache.update(new, -new, 0)[0][:, 0, :, 0]


def test_new_tokens_stand_behind_those_of_their_row():
    cache = small_cache(2)
    write(cache, [[1, 2], [3, 4]], start=0)
    assert write(cache, [[5], [6]], start=2).tolist() == [[1, 2, 5], [3, 4, 6]]
    assert write(cache, [[7]], start=3, rows=[1]).tolist() == [[3, 4, 6, 7]]
    assert cache.values[0][0, 0, :3, 0].tolist() == [-1, -2, -5]


def test_a_row_is_copied_as_far_as_asked():
    cache = small_cache(3)
    write(cache, [[1, 2, 3]], start=0)
    cache.copy_row(0, [1, 2], 2)
    assert cache.keys[0][1:, 0, :3, 0].tolist() == [[1, 2, 0], [1, 2, 0]]


def test_the_store_grows_in_steps_and_keeps_what_it_holds():
    cache = small_cache(2)
    assert (cache.num_rows, cache.num_columns) == (2, TIME_BLOCK)
    write(cache, [[1, 2], [3, 4]], start=0)
    cache.reserve(3, TIME_BLOCK)
    assert (cache.num_rows, cache.num_columns) == (4, 2 * TIME_BLOCK)  # rows double; the last column is scratch
    assert cache.keys[0][:2, 0, :2, 0].tolist() == [[1, 2], [3, 4]]
    cache.reserve(8, TIME_BLOCK)
    assert cache.num_rows == 8


def test_nothing_is_stored_outside_of_a_step():
    with pytest.raises(AssertionError, match="outside of its pass"):
        small_cache(1).update(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1), 0)
