"""The norm against that of torch."""

import pytest
import torch
from torch import nn

from tests.modeling.kernels.interpreter import MARKS, assert_same, normal  # isort: skip  # chooses it

from ragen.modeling.kernels.norm import rms_norm, rms_norm_rows

pytestmark = MARKS


@pytest.mark.parametrize("shape", [(1, 5, 96), (7, 3, 32), (1, 2, 2100)])
def test_norm(shape):
    x, gain = normal(*shape), normal(shape[-1], seed=1)
    assert_same(rms_norm(x, gain, 1e-6), nn.functional.rms_norm(x, shape[-1:], gain, 1e-6), (x, gain))


@pytest.mark.parametrize("width", [96, 2100])
def test_norm_without_gradient_is_the_same_to_the_bit(width):
    x, gain = normal(5, width).detach(), normal(width, seed=1).detach()
    assert torch.equal(rms_norm_rows(x, gain, 1e-6), rms_norm(x, gain, 1e-6))


def test_norm_of_more_rows_than_programs(monkeypatch):
    monkeypatch.setattr("ragen.modeling.kernels.norm.NUM_PROGRAMS", 2)
    x, gain = normal(200, 64), normal(64, seed=1)
    assert_same(rms_norm(x, gain, 1e-6), nn.functional.rms_norm(x, (64,), gain, 1e-6), (x, gain))
