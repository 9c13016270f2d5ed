"""Padded attention: every query in one bucket, and the mask of a bucket."""

import pytest
import torch

from ragen.modeling.attention import padded
from ragen.modeling.attention.padded import Bucket
from ragen.modeling.packing import pack
from tests.modeling.sequences import CPU, family_tree


@pytest.mark.parametrize("call_cost", [0, 2**14])
@pytest.mark.parametrize("max_pairs", [100, 2**26])
def test_every_token_is_a_query_in_exactly_one_bucket(monkeypatch, call_cost, max_pairs):
    monkeypatch.setattr(padded, "CALL_COST", call_cost)
    monkeypatch.setattr(padded, "MAX_PAIRS", max_pairs)
    packing = pack(family_tree(), CPU)
    buckets = packing.all_queries.buckets
    asked = torch.cat([bucket.queries[bucket.is_query] for bucket in buckets])
    assert sorted(asked.tolist()) == list(range(packing.ids.shape[1]))
    for bucket in buckets:
        assert len(bucket.queries) == 1 or bucket.queries.numel() * bucket.keys.shape[1] <= max_pairs
    assert len(buckets) == 1 or call_cost == 0 or max_pairs == 100


def bucket(positions: list[list[int]], num_keys: int) -> Bucket:
    index = torch.tensor(positions)
    keys = torch.arange(num_keys).expand(len(positions), -1)
    return Bucket(positions=index, is_query=torch.ones_like(index, dtype=torch.bool), keys=keys)


def test_a_plainly_causal_bucket_needs_no_mask():
    assert bucket([[0, 1, 2]], 3).mask(None, torch.float32) is None
    assert bucket([[0, 1, 2]], 3).mask(3, torch.float32) is None


def test_the_mask_of_a_bucket_hides_what_comes_later_and_what_left_the_window():
    inf = float("inf")
    found = bucket([[1, 2]], 3).mask(None, torch.float32)
    assert found is not None and found.tolist() == [[[[0, 0, -inf], [0, 0, 0]]]]
    narrow = bucket([[1, 2]], 3).mask(2, torch.float32)
    assert narrow is not None and narrow.tolist() == [[[[0, 0, -inf], [-inf, 0, 0]]]]
