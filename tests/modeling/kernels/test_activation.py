"""The gated activation against that of torch."""

from torch import nn

from tests.modeling.kernels.interpreter import MARKS, assert_same, normal  # isort: skip  # chooses it

from ragen.modeling.kernels.activation import silu_mul

pytestmark = MARKS


def test_gated_activation():
    gate, up = normal(3, 1500), normal(3, 1500, seed=1)
    assert_same(silu_mul(gate, up), nn.functional.silu(gate) * up, (gate, up))
