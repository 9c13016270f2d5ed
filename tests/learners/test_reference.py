"""The frozen policy: a model of its own, or the actor's without its adapter."""

import torch

from ragen.config.schema import LoraConfig
from ragen.learners.reference import Reference
from ragen.modeling.lora import add_adapter
from tests.engine.families import random_model

IDS = torch.tensor([[5, 6, 7, 8]])


def test_without_its_adapter_the_actor_is_the_reference():
    model = random_model("qwen2")
    with torch.no_grad():
        expected = model(IDS).logits
        add_adapter(model, LoraConfig(rank=2, alpha=4.0, target_modules="all-linear"), seed=0)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.5)
        adapted = model(IDS).logits
        with Reference(model, is_adapter_off=True).serving():
            assert torch.equal(model(IDS).logits, expected)
        assert torch.equal(model(IDS).logits, adapted) and not torch.equal(adapted, expected)


def test_a_model_of_its_own_is_used_as_it_is():
    model = random_model("qwen2")
    with torch.no_grad(), Reference(model).serving():
        assert torch.equal(model(IDS).logits, random_model("qwen2")(IDS).logits)
