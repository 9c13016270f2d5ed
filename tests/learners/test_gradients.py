"""Gradients of the parts of the loss: several folds and all parts in a pass, against a pass for each."""

from dataclasses import replace
from weakref import WeakSet

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ragen.config.schema import LoraConfig
from ragen.learners import gradients
from ragen.learners.actor import Actor
from ragen.learners.gradients import MAX_SLICES, Found, component_gradients
from ragen.learners.reference import Reference
from ragen.learners.sketches import Flat, Sketch
from ragen.modeling.attention import packed
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.lora import add_adapter
from ragen.modeling.packing import pack_apart
from ragen.modeling.slices import Slices
from tests.engine.families import random_model
from tests.learners.batches import SPLITS, actor_config, random_batch

BUCKETS = {"bucket_1": [[0, 1], [2, 3], [8, 9, 10, 11]], "bucket_2": [[4], [5, 6, 7], [12, 13], [14], [15]]}


def actor_of(model, **changes) -> Actor:
    return Actor(model, replace(actor_config(), **changes), temperature=1.3, total_steps=10)


def both_ways(actor: Actor, monkeypatch, buckets=BUCKETS) -> tuple[Found, Found]:
    """One by one, and together."""
    batch = random_batch(16)
    fast = component_gradients(actor, batch, buckets)
    assert all(weight.grad is None for weight in actor.model.parameters())
    with monkeypatch.context() as patch:
        patch.setattr(gradients, "_has_room", lambda actor, num_components: False)
        return component_gradients(actor, batch, buckets), fast


def assert_same(slow: Found, fast: Found, *, rel: float) -> None:
    assert list(slow) == list(fast)
    for name, rows in slow.items():
        assert list(rows) == list(fast[name]) == [*BUCKETS, "all"]
        for bucket, row in rows.items():
            other = fast[name][bucket]
            assert row.norm > 0
            assert other.norm == pytest.approx(row.norm, rel=rel)
            assert other.loss == pytest.approx(row.loss, rel=1e-4, abs=1e-6)
            assert torch.equal(other.masses, row.masses)
            assert (other.sketches - row.sketches).norm() <= rel * row.sketches.norm()


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum-norm"])
def test_all_parts_of_several_folds_at_once_have_the_gradients_of_a_pass_for_each(family, split, mode, monkeypatch):
    actor = actor_of(random_model(family), loss_agg_mode=mode, **split)
    assert_same(*both_ways(actor, monkeypatch), rel=1e-5)


@pytest.mark.parametrize("changes", [{"kl_loss_type": "low_var_kl"}, {"entropy_from_logits_with_chunking": True}])
def test_adapters_and_rounded_weights_too(changes, monkeypatch):
    model = random_model("qwen2").to(torch.bfloat16)
    assert_same(*both_ways(actor_of(model, **changes), monkeypatch), rel=3e-2)
    model = random_model("qwen3")
    add_adapter(model, LoraConfig(rank=2, alpha=8.0, target_modules="all-linear"), seed=1)
    with torch.no_grad():  # adapters begin at zero
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    assert_same(*both_ways(actor_of(model, **changes), monkeypatch), rel=1e-5)


@pytest.mark.parametrize("is_tied", [False, True], ids=["", "tied"])
def test_the_kl_of_whole_distributions_needs_no_pass_for_each_group(is_tied, monkeypatch, caplog):
    gradients._say.cache_clear()
    model = random_model("llama")
    if is_tied:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    reference = Reference(random_model("llama").requires_grad_(False))
    with torch.no_grad():
        for weight in reference.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    config = replace(actor_config(), kl_loss_type="full")
    actor = Actor(model, config, temperature=1.3, total_steps=10, reference=reference)
    fast = component_gradients(actor, random_batch(16), BUCKETS)
    assert not caplog.text
    assert_same(both_ways(actor, monkeypatch)[0], fast, rel=1e-5)


def test_a_pass_serves_all_parts_and_several_folds(monkeypatch):
    model = random_model("llama")
    actor = actor_of(model, use_dynamic_bsz=True, ppo_max_token_len_per_gpu=10_000)
    rows: list[int] = []
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: rows.append(inputs[0].numel()))
    said: list[tuple] = []
    component_gradients(actor, random_batch(16), BUCKETS, lambda *each: said.append(each))
    parts = ["task", "entropy", "kl"]
    done = [(name, num_samples) for name, components, num_samples in said if components == parts]
    assert MAX_SLICES == 4, "five folds are two passes"
    assert done == [("bucket_1", 0), ("bucket_1", 8), ("bucket_2", 0), ("bucket_2", 7), ("bucket_2", 1)]
    assert sum(rows) == random_batch(16).num_tokens  # nothing is shared, nothing is read twice


def test_a_pass_and_its_gradients_wait_for_no_number(monkeypatch):
    """On the meta device there are none: the CPU may be a pass ahead of a GPU."""
    attend = packed._attend_flash
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda q, k, v, *args, **named: q + (k + v).mean())
    monkeypatch.setattr(packed.PACKED, "_attend", lambda heads, row: attend(heads, row.packing))
    actor, batch, device = actor_of(random_model("llama")), random_batch(4), torch.device("meta")
    batch.weights = batch.mean_weights = batch.mask / batch.mask.sum()
    actor.model.to(device)
    weights = list(actor.model.parameters())
    packing = pack_apart([batch.ids[:2], batch.ids[2:]], device, mask=batch.mask)
    slices = Slices(actor.model, weights, packing, [2, 2], batch.mask)
    names = set()

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with packed_attention(actor.model, packing), slices, Names():
        terms, _ = actor.terms(batch, packing, slices)
        found = [list(slices.gradients(term, keep=True)) for term in terms.values()]
    assert "masked_scatter_backward" not in names, "it selects by the mask, and waits for the number of what it selects"
    assert [len(each) for each in found] == [2, 2, 2]
    assert all(gradient is not None for slices in found for slice in slices for gradient in slice)


def test_where_memory_is_short_parts_are_taken_one_by_one_and_it_is_said_once(monkeypatch, caplog):
    gradients._say.cache_clear()
    monkeypatch.setattr(gradients, "free_memory", lambda device: 1e5)
    actor = actor_of(random_model("llama"))
    said: list[tuple] = []
    for _ in range(2):
        component_gradients(actor, random_batch(16), BUCKETS, lambda *each: said.append(each))
    assert {tuple(components) for _, components, _ in said} == {("task",), ("entropy",), ("kl",)}
    assert len(caplog.records) == 1 and "more than half of what is free" in caplog.text


def model_that_uses_a_weight_outside_of_its_module():
    model = random_model("llama")
    mlp = model.base_model.layers[0].mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(x @ mlp.gate_proj.weight.T) * mlp.up_proj(x))
    return model


def test_where_a_weight_is_used_outside_of_its_module_a_pass_takes_one_fold(monkeypatch, caplog):
    gradients._say.cache_clear()
    slow, fast = both_ways(actor_of(model_that_uses_a_weight_outside_of_its_module()), monkeypatch)
    assert_same(slow, fast, rel=1e-5)
    assert "a pass for each group: a weight is used outside of its module" in caplog.text


def test_what_the_first_attempt_held_is_free_when_the_second_begins(monkeypatch):
    alive, counts = WeakSet(), []

    class Counted(Flat):
        def __init__(self, weights) -> None:
            super().__init__(weights)
            alive.add(self)
            counts.append(len(alive))

    monkeypatch.setattr(gradients, "Flat", Counted)
    component_gradients(actor_of(model_that_uses_a_weight_outside_of_its_module()), random_batch(16), BUCKETS)
    assert counts == [1, 1]


def test_where_memory_runs_out_parts_are_taken_one_by_one(monkeypatch, caplog):
    gradients._say.cache_clear()
    model = random_model("llama")
    actor, grad = actor_of(model), torch.autograd.grad

    def short_of_memory(*args, **named):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.autograd, "grad", short_of_memory)
    found = component_gradients(actor, random_batch(16), BUCKETS)
    assert "one part of the loss at a time, and a pass for each group: faster ways ran out of memory" in caplog.text
    monkeypatch.setattr(torch.autograd, "grad", grad)
    assert_same(found, component_gradients(actor, random_batch(16), BUCKETS), rel=1e-5)


def test_a_flat_gradient_has_the_sketch_and_the_norm_of_its_parts():
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(*shape, generator=generator) for shape in ((5,), (70, 60), (4099,), (3, 4099))]
    flat = Flat(weights)
    filled = flat.fill(weights)
    torch.testing.assert_close(flat.sketch(filled), Sketch()(dict(enumerate(weights))), rtol=1e-4, atol=1e-4)
    whole = torch.cat([weight.flatten() for weight in weights])
    assert flat.norm(filled).item() == pytest.approx(whole.norm().item(), rel=1e-5)
    assert flat.fill([weights[0], None, None, None]).square().sum() == pytest.approx(weights[0].square().sum().item())
