"""Packed sequences against one sequence at a time, and common beginnings computed once against whole sequences."""

from dataclasses import replace

import pytest
import torch

from ragen.algorithms.entropy import head_logprobs
from ragen.learners.actor import Actor
from ragen.learners.critic import sampled_values
from ragen.modeling.attention import packed, padded
from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.attention.switch import Heads
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import pack
from tests.engine.families import FAMILIES, random_model
from tests.learners.batches import actor_config, random_batch, value_model
from tests.modeling.sequences import (
    CPU,
    LENGTHS,
    family_tree,
    mask_of,
    sampled_rows,
    sampled_targets,
    sequences,
    tokens,
)


def gradient(model) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_logits_equal_those_of_single_sequences(family):
    model = random_model(family)
    packing = pack(sequences(), torch.device("cpu"))
    with torch.no_grad(), packed_attention(model, packing):
        packed = logits_of(model, hidden_states(model, packing))
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([sequence])).logits[0] for sequence in sequences()])
    torch.testing.assert_close(packed, alone, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_packed_gradients_equal_those_of_single_sequences(family, is_checkpointed):
    model = random_model(family).train()
    if is_checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    packing = pack(sequences(), torch.device("cpu"))
    with packed_attention(model, packing):
        logits_of(model, hidden_states(model, packing)).square().mean().backward()
    twin = random_model(family).eval()
    total = sum(LENGTHS)
    for sequence in sequences():
        (twin(torch.tensor([sequence])).logits.square().mean() * len(sequence) / total).backward()
    torch.testing.assert_close(gradient(model), gradient(twin), atol=1e-4, rtol=1e-3)


def sampled(model, sequences: list[list[int]], *, share: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of the sampled tokens, and the gradient of a loss that weighs each of them differently."""
    mask = mask_of(sequences)
    packing = pack(sequences, CPU, mask=mask if share else None, share=share)
    model.zero_grad()
    with packed_attention(model, packing):
        hidden = hidden_states(model, packing)[sampled_rows(mask, packing)]
        logprobs, entropies = head_logprobs(
            hidden, lambda states: logits_of(model, states), sampled_targets(sequences, mask)
        )
        weights = torch.linspace(-1, 1, len(logprobs))
        assert entropies is not None
        (weights * logprobs + 0.1 * entropies).mean().backward()
    return logprobs.detach(), gradient(model)


def test_without_a_mask_every_hidden_state_is_right():
    model, sequences = random_model("llama"), family_tree()
    packing = pack(sequences, CPU)
    with torch.no_grad(), packed_attention(model, packing):
        logits = logits_of(model, hidden_states(model, packing))
    for row, sequence in enumerate(sequences):
        with torch.no_grad():
            alone = model(torch.tensor([sequence])).logits[0]
        torch.testing.assert_close(logits[packing.to_padded[row, : len(sequence)]], alone, atol=2e-5, rtol=1e-4)


def test_the_last_layer_computes_only_what_is_wanted():
    model, sequences = random_model("qwen2"), family_tree()
    mask = mask_of(sequences)
    seen: list[int] = []
    model.base_model.layers[-1].mlp.up_proj.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    for given in (mask, mask * 0, None):
        packing = pack(sequences, CPU, mask=given)
        with torch.no_grad(), packed_attention(model, packing), packed_attention(model, packing):
            hidden_states(model, packing)
    num_wanted = len(set(sampled_rows(mask, packing).tolist()))
    assert num_wanted < packing.ids.shape[1]
    assert seen == [num_wanted, packing.ids.shape[1], packing.ids.shape[1]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("call_cost", [0, 2**14])
def test_logprobs_and_gradients_do_not_depend_on_sharing(monkeypatch, family, is_checkpointed, call_cost):
    monkeypatch.setattr(padded, "CALL_COST", call_cost)
    model = random_model(family, torch.float64).train()
    if is_checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    expected, expected_gradient = sampled(model, family_tree(), share=False)
    logprobs, found_gradient = sampled(model, family_tree(), share=True)
    # Norms and softmaxes of some families round to float32 on the way, whatever the type of the weights.
    assert (logprobs - expected).abs().max() < 2e-5
    assert (found_gradient - expected_gradient).norm() < 1e-5 * expected_gradient.norm()


def test_without_rounding_on_the_way_sharing_is_exact_to_twelve_digits():
    model = random_model("gpt2", torch.float64).train()
    ours, twins = [], []
    for result, share in ((ours, True), (twins, False)):
        sequences = family_tree()
        packing = pack(sequences, CPU, mask=mask_of(sequences) if share else None, share=share)
        model.zero_grad()
        with packed_attention(model, packing):
            hidden = hidden_states(model, packing)[sampled_rows(mask_of(sequences), packing)]
            hidden.square().sum().backward()
        result += [hidden.detach(), gradient(model)]
    for found, expected in zip(ours, twins, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10 * expected.abs().max().item())


def test_values_do_not_depend_on_sharing():
    model, batch, prompt = value_model().double(), random_batch(), tokens(20, seed=30)
    batch.ids = [[*prompt, 50 + i, 8, 9] for i in range(len(batch))]
    batch.mask = mask_of(batch.ids)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for share in (False, True):
        packing = pack(batch.ids, CPU, mask=batch.mask if share else None, share=share)
        model.zero_grad()
        with packed_attention(model, packing):
            values = sampled_values(model, replace(packing, sampled=sampled_rows(batch.mask, packing)))
            (values * torch.linspace(-1, 1, len(values))).sum().backward()
        found.append((values.detach(), gradient(model)))
    assert packing.ids.shape[1] == 20 + 3 * len(batch), "the prompt was shared"
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-5)
    assert (found[1][1] - found[0][1]).norm() < 1e-5 * found[0][1].norm()


def naive_varlen(q, k, v, ends, key_ends, most_queries, most_keys, *, scale, window_size):
    """What the kernel computes: the last query of a sequence sees all its keys, the one before all but one."""
    assert window_size == (-1, 0)
    sizes, key_sizes = ends.diff(), key_ends.diff()
    assert most_queries == sizes.max() and most_keys == key_sizes.max() and sizes.min() > 0
    outs = []
    parts = (tensor.split(counts.tolist()) for tensor, counts in ((q, sizes), (k, key_sizes), (v, key_sizes)))
    for queries, keys, values in zip(*parts, strict=True):
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * scale
        is_hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(len(keys) - len(queries) + 1)
        outs.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(is_hidden, float("-inf")).softmax(-1), values))
    return torch.cat(outs)


def heads_of(query, key, value) -> Heads:
    fixed = {"scaling": 0.3, "window": None, "softcap": None, "dropout": 0.0, "module": None}
    return Heads(query=query, key=key, value=value, **fixed)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("num_key_heads", [2, 4])
def test_variable_length_attention_gets_the_keys_of_every_sequence(monkeypatch, share, num_key_heads):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", naive_varlen)
    packing = pack(family_tree(), CPU, share=share)
    generator = torch.Generator().manual_seed(0)

    def random(count: int) -> torch.Tensor:
        return torch.randn(1, count, packing.ids.shape[1], 8, generator=generator, dtype=torch.float64)

    q, k, v = random(4), random(num_key_heads), random(num_key_heads)
    heads = heads_of(q, k, v)
    found = packed._attend_flash(heads, packing)
    expected = padded.attend_padded(heads, packing.all_queries, {})
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


class OnGpu(torch.Tensor):
    """A tensor of the CPU that says that it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(
    ("size", "value_size", "is_known"), [(64, 64, True), (24, 16, False), (12, 12, False), (512, 512, False)]
)
def test_heads_that_flash_attention_does_not_know_are_padded(monkeypatch, size, value_size, is_known):
    """DeepSeek's values are smaller than its keys, and global layers of Gemma 4 have heads of 512."""
    calls = []
    monkeypatch.setattr(
        "torch.nn.attention.varlen.varlen_attn", lambda *args, **named: calls.append(1) or naive_varlen(*args, **named)
    )
    packing = pack(family_tree(), CPU)
    shape = (1, 2, packing.ids.shape[1])
    query, key = torch.randn(2, *shape, size).half()
    heads = heads_of(query, key, torch.randn(*shape, value_size).half())
    found = packed.attend_packed(replace(heads, query=query.as_subclass(OnGpu)), packed.Row(packing=packing))
    assert bool(calls) == is_known
    expected = padded.attend_padded(heads, packing.all_queries, {})
    torch.testing.assert_close(found.as_subclass(torch.Tensor), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("micro_batch_size", [7, 2])
def test_an_update_does_not_depend_on_sharing(monkeypatch, micro_batch_size):
    results = []
    for min_shared in (10**9, 2):
        monkeypatch.setattr("ragen.modeling.packing.MIN_SHARED", min_shared)
        batch = random_batch()
        batch.ids = [[7, 8, *ids[2:]] for ids in batch.ids]
        settings = replace(actor_config(ppo_micro_batch_size_per_gpu=micro_batch_size), ppo_mini_batch_size=7)
        settings = replace(settings, optim=replace(settings.optim, lr=1e-3))
        model = random_model("qwen3")
        metrics = Actor(model, settings, temperature=0.9, total_steps=10).update(batch, step=1)
        results.append((metrics, torch.cat([p.detach().flatten() for p in model.parameters()])))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-3, abs=1e-5)
    torch.testing.assert_close(results[1][1], results[0][1], atol=2e-4, rtol=1e-3)
