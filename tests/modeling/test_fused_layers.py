"""Whole models with fused layers against the same with their own."""

import pytest
import torch
from torch import Tensor

from tests.modeling.kernels.interpreter import DEVICE, MARKS  # isort: skip  # chooses it

from ragen.algorithms.entropy import head_logprobs as plain_head_logprobs
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.fused_layers import fusable_head
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack
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
