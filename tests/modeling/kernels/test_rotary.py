"""Rotary embedding against its formula."""

import torch

from tests.modeling.kernels.interpreter import DEVICE, MARKS, assert_same, normal  # isort: skip  # chooses it

from ragen.modeling.kernels.rotary import rotate

pytestmark = MARKS


def test_rotary_embedding_of_a_slice():
    qkv = normal(6, 5 * 32)
    x = qkv[:, 32:128].unflatten(1, (3, 32))
    angles = torch.rand(6, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    left, right = x.chunk(2, dim=-1)
    expected = x * cos[:, None] + torch.cat([-right, left], dim=-1) * sin[:, None]
    assert_same(rotate(x, cos, sin), expected, (qkv,))
