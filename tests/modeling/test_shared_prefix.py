"""Common beginnings computed once, against every sequence on its own."""

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
from ragen.modeling.packing import MIN_SHARED, Packing, micro_batches, pack
from tests.engine.families import FAMILIES, VOCAB, random_model
from tests.learners.test_learners import actor_config, random_batch, value_model

CPU = torch.device("cpu")


def tokens(count: int, seed: int) -> list[int]:
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def family_tree() -> list[list[int]]:
    """Two groups; within them longer and longer common beginnings, a twin, a beginning of another, and strangers."""
    prompt, other = tokens(20, seed=0), tokens(MIN_SHARED, seed=1)
    reply = prompt + tokens(6, seed=2)
    return [
        prompt + tokens(9, seed=3),
        other + tokens(4, seed=4),
        reply + tokens(5, seed=5),
        tokens(11, seed=6),
        reply + tokens(30, seed=7),
        reply + tokens(5, seed=5),
        other + tokens(2, seed=8),
        reply,
        [5],
        other[:-1] + tokens(3, seed=9),
    ]


def mask_of(sequences: list[list[int]]) -> torch.Tensor:
    """Sampled: the token after the shared prompt, which all its sequences draw from one hidden state, and others."""
    mask = torch.zeros(len(sequences), max(map(len, sequences)))
    for row, ids in enumerate(sequences):
        mask[row, 1 : len(ids) : 3] = 1
        mask[row, 20 : min(len(ids), 24)] = 1
    return mask


def sampled_rows(mask: torch.Tensor, packing: Packing) -> torch.Tensor:
    """Where the sampled tokens were drawn, for packings that were made without their mask, too."""
    return packing.to_padded[:, :-1][mask[:, 1:].bool()]


def sampled_targets(sequences: list[list[int]], mask: torch.Tensor) -> torch.Tensor:
    return torch.tensor([ids[i] for ids, row in zip(sequences, mask, strict=True) for i in row.nonzero()[:, 0]])


def test_a_common_beginning_stands_in_the_row_once():
    prompt = list(range(3, 3 + MIN_SHARED))
    packing = pack([[*prompt, 50, 51], [*prompt, 60]], CPU)
    assert packing.ids.tolist() == [[*prompt, 50, 51, 60]]
    assert packing.shared == [0, MIN_SHARED]
    assert packing.position_ids[0].tolist() == [*range(MIN_SHARED + 2), MIN_SHARED]
    assert packing.to_padded[1, : MIN_SHARED + 1].tolist() == [*range(MIN_SHARED), MIN_SHARED + 2]


def test_every_sequence_can_be_read_from_the_row():
    sequences = family_tree()
    packing = pack(sequences, CPU)
    assert packing.ids.shape[1] == 20 + 9 + 6 + 5 + 30 + MIN_SHARED + 4 + 2 + 11 + 1 + MIN_SHARED + 2
    for row, sequence in enumerate(sequences):
        indices = packing.to_padded[row, : len(sequence)]
        assert packing.ids[0, indices].tolist() == sequence
        assert packing.position_ids[0, indices].tolist() == list(range(len(sequence)))
    assert packing.ids[0].tolist() == [
        token for sequence, count in zip(sequences, packing.shared, strict=True) for token in sequence[count:]
    ]


@pytest.mark.parametrize("call_cost", [0, 2**14])
@pytest.mark.parametrize("max_pairs", [100, 2**26])
def test_every_token_is_a_query_in_exactly_one_bucket(monkeypatch, call_cost, max_pairs):
    monkeypatch.setattr(padded, "CALL_COST", call_cost)
    monkeypatch.setattr(padded, "MAX_PAIRS", max_pairs)
    packing = pack(family_tree(), CPU)
    buckets = packing.all_queries.buckets
    asked = torch.cat([bucket.queries[bucket.is_query] for bucket in buckets])
    assert sorted(asked.tolist()) == list(range(packing.ids.shape[1]))
    for bucket in buckets:
        assert len(bucket.queries) == 1 or bucket.queries.numel() * bucket.keys.shape[1] <= max_pairs
    assert len(buckets) == 1 or call_cost == 0 or max_pairs == 100


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


def gradient(model) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


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


def heads_of(query, key, value) -> Heads:
    fixed = {"scaling": 0.3, "window": None, "softcap": None, "dropout": 0.0, "module": None}
    return Heads(query=query, key=key, value=value, **fixed)


def test_groups_stay_together_in_micro_batches():
    first, second = tokens(20, seed=0), tokens(20, seed=1)
    first, second = sorted((first, second))
    mixed = [[*second, 5], [*first, 5, 6, 7], [*second, 6], [*first, 8]]
    assert micro_batches(mixed, max_samples=2) == [[1, 3], [0, 2]]
    # 23 + 1 tokens, and then 21 + 1.
    assert micro_batches(mixed, max_tokens=24) == [[1, 3], [0, 2]]
    assert micro_batches(mixed, max_tokens=23) == [[1], [3], [0, 2]]
    assert micro_batches(mixed, max_tokens=1) == [[1], [3], [0], [2]]


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
