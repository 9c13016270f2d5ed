"""The gated activation against that of torch."""

import pytest
import torch
from torch import nn

from tests.modeling.kernels.interpreter import CPU_ONLY, MARKS, assert_same, normal  # isort: skip  # chooses it

from ragen.modeling.kernels.activation import gated_product, silu_mul

pytestmark = MARKS


def test_gated_activation():
    gate, up = normal(3, 1500), normal(3, 1500, seed=1)
    assert_same(silu_mul(gate, up), nn.functional.silu(gate) * up, (gate, up))


@CPU_ONLY
@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "width"), [(3, 96), (70, 96), (2050, 160)])
def test_gated_product_in_one_kernel_or_two(num_rows, width):
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, 72), torch.randn(2 * width, 72) / 8
    gate, up = (x @ weight.t()).chunk(2, dim=1)
    torch.testing.assert_close(gated_product(x, weight), torch.nn.functional.silu(gate) * up, rtol=1e-4, atol=1e-4)
