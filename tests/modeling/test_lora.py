"""Low-rank adapters: what trains, what is saved, and the reference below them."""

import weakref

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from ragen.config.schema import LoraConfig
from ragen.errors import ConfigError, FileError
from ragen.modeling.load import load_model, load_value_model
from ragen.modeling.lora import add_adapter, has_adapter, load_adapter, merged_state, save_adapter, without_adapter
from ragen.models.resolve import resolve_model
from tests.engine.families import random_model

pytest.importorskip("peft")

IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])
RANK_4 = LoraConfig(rank=4, alpha=8.0, target_modules="all-linear")


def adapted(family: str = "qwen2", *, seed: int = 1, noise: float = 0.0):
    """A random model with adapters; `noise` moves them away from their start."""
    model = random_model(family)
    add_adapter(model, RANK_4, seed=seed)
    generator = torch.Generator().manual_seed(2)
    for weight in trained(model).values():
        weight.data += noise * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.parametrize("targets", [("nope",), ("q_proj", "nope"), "nope"])
def test_a_module_that_the_model_lacks_is_refused(targets):
    config = LoraConfig(rank=4, alpha=8.0, target_modules=targets)
    with pytest.raises(ConfigError, match=r"no module 'nope'.*down_proj, gate_proj.*or all-linear"):
        add_adapter(random_model("qwen2"), config, seed=1)


def test_an_adapter_of_another_rank_is_refused(tmp_path):
    save_adapter(adapted(), tmp_path)
    other = random_model("qwen2")
    add_adapter(other, LoraConfig(rank=2, alpha=8.0, target_modules="all-linear"), seed=1)
    with pytest.raises(FileError, match=r"adapter\.safetensors has no .* of shape"):
        load_adapter(other, tmp_path)
    (tmp_path / "adapter.safetensors").write_bytes(b"cut")
    with pytest.raises(FileError, match=r"adapter\.safetensors is not a safetensors file"):
        load_adapter(other, tmp_path)


def trained(model) -> dict[str, torch.nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(IDS).logits


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_new_adapter_changes_nothing_and_alone_is_trained(family):
    plain, model = random_model(family), adapted(family)
    torch.testing.assert_close(logits(model), logits(plain))
    names = trained(model)
    assert names and all("lora_" in name for name in names)
    assert not any("lm_head" in name or "embed" in name for name in names)
    assert has_adapter(model) and not has_adapter(plain)


def test_the_seed_fixes_the_adapter():
    one, same, other = adapted(seed=1), adapted(seed=1), adapted(seed=2)
    for name, weight in trained(one).items():
        assert torch.equal(weight, trained(same)[name])
    assert any(not torch.equal(weight, trained(other)[name]) for name, weight in trained(one).items())


def test_adding_an_adapter_does_not_touch_the_global_generator():
    model = random_model("qwen2")
    state = torch.get_rng_state()
    add_adapter(model, RANK_4, seed=3)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_the_adapter_the_model_is_the_base_and_then_learns_again():
    plain, model = random_model("qwen2"), adapted(noise=0.5)
    names = set(trained(model))
    changed = logits(model)
    assert (changed - logits(plain)).abs().max() > 0.01
    with without_adapter(model):
        torch.testing.assert_close(logits(model), logits(plain))
    torch.testing.assert_close(logits(model), changed)
    assert set(trained(model)) == names


def test_the_adapter_comes_back_after_a_failure():
    model = adapted(noise=0.5)
    changed = logits(model)
    with pytest.raises(RuntimeError), without_adapter(model):
        raise RuntimeError
    torch.testing.assert_close(logits(model), changed)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_merged_weights_are_a_plain_model_with_the_same_logits(tmp_path, family):
    model = adapted(family, noise=0.3)
    before = logits(model)
    model.save_pretrained(tmp_path, state_dict=merged_state(model))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert not has_adapter(merged)
    torch.testing.assert_close(logits(merged), before, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits(model), before)  # the live model is as it was


def test_the_changes_of_adapters_are_merged_one_at_a_time(monkeypatch):
    """All of them together are as large as the model."""
    from peft.tuners.lora import Linear, LoraLayer

    made, delta_of = [], Linear.get_delta_weight

    def watched(self, adapter):
        assert [each for each in made if each() is not None] == []
        delta = delta_of(self, adapter)
        made.append(weakref.ref(delta))
        return delta

    monkeypatch.setattr(Linear, "get_delta_weight", watched)
    model = adapted(noise=0.3)
    merged_state(model)
    assert len(made) == sum(isinstance(module, LoraLayer) for module in model.modules())


def test_a_saved_adapter_is_loaded_bit_by_bit(tmp_path):
    model, fresh = adapted(noise=0.3), adapted(seed=9)
    save_adapter(model, tmp_path)
    load_adapter(fresh, tmp_path)
    assert torch.equal(logits(fresh), logits(model))


def test_a_critic_with_adapters_trains_its_head_and_is_merged(tmp_path):
    path = resolve_model("tiny/bandit")
    model = load_value_model(path, device="cpu")
    add_adapter(model, RANK_4, seed=1, trained_heads=("score", "classifier"))
    names = trained(model)
    assert any(name.startswith("score.") for name in names)
    assert all("lora_" in name or name.startswith("score.") for name in names)
    for weight in names.values():
        weight.data += 0.1
    model.save_pretrained(tmp_path, state_dict=merged_state(model))
    merged = AutoModelForTokenClassification.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(merged), logits(model), atol=1e-4, rtol=1e-4)


def test_modules_can_be_named():
    model = random_model("qwen2")
    add_adapter(model, LoraConfig(rank=2, alpha=4.0, target_modules=("q_proj", "v_proj")), seed=1)
    assert {name.split(".")[-4] for name in trained(model)} == {"q_proj", "v_proj"}


def test_what_is_trained_starts_without_dropout_and_in_memory_of_its_own():
    """A value head drops a tenth by default, and the weights of a file lie anywhere."""
    path = resolve_model("tiny/bandit")
    for model in (load_value_model(path, device="cpu"), load_model(path, device="cpu", is_trained=True)):
        assert all(module.p == 0 for module in model.modules() if isinstance(module, torch.nn.Dropout))
        assert {weight.data_ptr() % 64 for weight in model.parameters()} == {0}
