"""Whole models with fused layers against the same with their own."""

from functools import partial

import pytest
import torch
from torch import Tensor

from tests.modeling.kernels.interpreter import DEVICE, MARKS  # isort: skip  # chooses it

from ragen.algorithms.entropy import head_logprobs as plain_head_logprobs
from ragen.learners.actor import sampled_hidden, sampled_logprobs
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.fused_layers import fusable_head
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack, pack_apart
from ragen.modeling.slices import Slices
from tests.engine.families import wide
from tests.modeling.sequences import family_tree, mask_of, sampled_targets

pytestmark = MARKS


@pytest.mark.parametrize(
    ("family", "is_checkpointed", "window"),
    [(family, is_checkpointed, {}) for family in ("qwen2", "qwen3", "llama") for is_checkpointed in (False, True)]
    + [("mistral", False, {"sliding_window": 7})],
)
def test_whole_models_with_fused_layers(family, is_checkpointed, window, monkeypatch):
    tree = family_tree()
    mask = mask_of(tree)
    targets = sampled_targets(tree, mask).to(DEVICE)

    def gradient(can_fuse: bool) -> tuple[Tensor, Tensor]:
        monkeypatch.setattr("ragen.modeling.fused_layers._can_fuse", lambda model, device: can_fuse)
        model = wide(family, **window).to(DEVICE).train()
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


@pytest.mark.parametrize(("family", "is_checkpointed"), [("qwen2", True), ("qwen3", False)])
def test_slices_of_a_row_with_fused_layers(family, is_checkpointed, monkeypatch):
    """Two sums over one row, the gradient of each slice: with our layers and with the model's own, a pass for each."""
    tree = family_tree()
    parts = [tree[:2], tree[2:3], tree[3:]]

    def gradients(can_fuse: bool, parts: list) -> list[Tensor]:
        monkeypatch.setattr("ragen.modeling.fused_layers._can_fuse", lambda model, device: can_fuse)
        model = wide(family).to(DEVICE).train()
        if is_checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        rows = [ids for part in parts for ids in part]
        mask, weights = mask_of(rows), list(model.parameters())
        packing = pack_apart(parts, torch.device(DEVICE), mask=mask)
        score = partial(sampled_logprobs, model, temperature=1.3)
        with packed_attention(model, packing), Slices(model, weights, packing, list(map(len, parts)), mask) as slices:
            sums = [each.sum() for each in slices.head(score, sampled_hidden(model, packing), packing.targets)]
            found = [list(slices.gradients(each, keep=each is sums[0])) for each in sums]
        assert "forward" not in vars(model.model.layers[0].input_layernorm)
        return [torch.cat([grad.flatten() for grad in grads if grad is not None]) for term in found for grads in term]

    alone = [gradients(False, [part]) for part in parts]
    expected = [each[term] for term in range(2) for each in alone]
    for ours, theirs in zip(gradients(True, parts), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
