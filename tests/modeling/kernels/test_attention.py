"""Attention over pages: launches of other shapes give the same."""

import pytest
import torch

from tests.modeling.kernels.interpreter import CPU_ONLY  # isort: skip  # chooses it

from ragen.modeling.kernels import session
from ragen.modeling.kernels.attention import PagedAttention

pytestmark = CPU_ONLY


@pytest.mark.slow
def test_attention_of_large_batches_equals_that_of_small_ones():
    torch.manual_seed(0)
    heads, kv_heads, dim, positions = 6, 2, 32, [0, 5, 64, 600]  # of up to 10 parts
    angles = torch.rand(640, dim // 2) * 6
    attention = PagedAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
        eps=1e-6,
        cos=angles.cos(),
        sin=angles.sin(),
        max_rows=256,
    )
    memory = torch.randn(10 * len(positions), attention.layer_bytes // 4)
    state = torch.zeros(len(positions), session.HEADER + 10, dtype=torch.int64)
    state[:, session.POSITION] = torch.tensor(positions)
    state[:, session.HEADER :] = torch.tensor([page.data_ptr() for page in memory]).view(-1, 10)
    qkv = torch.randn(len(positions), (heads + 2 * kv_heads) * dim)
    before = memory.clone()
    few = attention.decode(0, qkv, None, torch.arange(len(positions)), state)
    memory.copy_(before)
    slots = torch.full((256,), -1)
    slots[: len(positions)] = torch.arange(len(positions))
    many = attention.decode(0, torch.cat([qkv, torch.zeros(256 - len(positions), qkv.shape[1])]), None, slots, state)
    torch.testing.assert_close(many[: len(positions)], few, rtol=1e-4, atol=1e-5)
    assert not attention.counters.any()
