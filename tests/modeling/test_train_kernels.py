"""Kernels of the update against the same in plain torch: on a GPU, or run by Triton's interpreter."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available():
    if "triton" in sys.modules:
        pytest.skip("the interpreter must be chosen before Triton is imported", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
if not torch.cuda.is_available() and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    pytest.skip("Triton 3.6's interpreter does not know NumPy 2.4", allow_module_level=True)

from ragen.algorithms.entropy import head_logprobs as plain_head_logprobs
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.fused_layers import fusable_head
from ragen.modeling.kernels.activation import silu_mul
from ragen.modeling.kernels.head import head_logprobs
from ragen.modeling.kernels.norm import rms_norm, rms_norm_rows
from ragen.modeling.kernels.rotary import rotate
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack
from tests.engine.families import wide
from tests.modeling.test_shared_prefix import family_tree, mask_of, sampled_targets

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [pytest.mark.gpu] if DEVICE == "cuda" else []


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE).requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Values and gradients, the latter for random weights of the outputs."""
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-5)
    weights = normal(*ours.shape, seed=9).detach()
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs), torch.autograd.grad((theirs * weights).sum(), inputs)
    ):
        torch.testing.assert_close(mine, other, atol=5e-5, rtol=5e-5)


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


def test_rotary_embedding_of_a_slice():
    qkv = normal(6, 5 * 32)
    x = qkv[:, 32:128].unflatten(1, (3, 32))
    angles = torch.rand(6, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    left, right = x.chunk(2, dim=-1)
    expected = x * cos[:, None] + torch.cat([-right, left], dim=-1) * sin[:, None]
    assert_same(rotate(x, cos, sin), expected, (qkv,))


def test_gated_activation():
    gate, up = normal(3, 1500), normal(3, 1500, seed=1)
    assert_same(silu_mul(gate, up), nn.functional.silu(gate) * up, (gate, up))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies(temperature):
    # Small logits: an entropy is the difference of two sums of their size.
    hidden, weight = normal(10, 32), normal(5000, 32, seed=1).detach().mul(0.3).requires_grad_()
    targets = torch.arange(10, device=DEVICE) * 499
    ours = head_logprobs(hidden, weight, targets, temperature=temperature, chunk_size=4)
    theirs = plain_head_logprobs(hidden, lambda states: states @ weight.T, targets, temperature=temperature)
    assert_same(torch.stack(ours), torch.stack(theirs), (hidden, weight))


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_whole_models_with_fused_layers(family, is_checkpointed, monkeypatch):
    tree = family_tree()
    mask = mask_of(tree)
    targets = sampled_targets(tree, mask).to(DEVICE)

    def gradient(can_fuse: bool) -> tuple[Tensor, Tensor]:
        monkeypatch.setattr("ragen.modeling.fused_layers._can_fuse", lambda model, device: can_fuse)
        model = wide(family).to(DEVICE).train()
        if is_checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        packing = pack(tree, torch.device(DEVICE), mask=mask)
        with packed_attention(model, packing):
            hidden = hidden_states(model, packing)[packing.sampled]
            assert (fusable_head(model) is not None) == can_fuse
            logprobs, _ = plain_head_logprobs(hidden, lambda states: logits_of(model, states), targets)
            logprobs.mean().backward()
        assert "forward" not in vars(model.model.layers[0].mlp)
        grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return logprobs.detach(), torch.cat(grads)

    for ours, theirs in zip(gradient(True), gradient(False), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-3)
