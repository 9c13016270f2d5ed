"""The matrix of log-probs against one sequence at a time."""

from itertools import product

import pytest
import torch
from torch import Tensor

from ragen.config.schema import LoraConfig
from ragen.learners.cross_scoring import Block, Ids, blocks, cross_logprobs, distinct
from ragen.modeling.load import load_model
from ragen.modeling.lora import add_adapter
from ragen.models.resolve import resolve_model
from tests.engine.families import FAMILIES, VOCAB, random_model


def one_at_a_time(model, prompts, continuations) -> Tensor:
    """The obvious way: a forward pass over every whole sequence."""
    sums = torch.zeros(len(continuations), len(prompts), dtype=torch.float64)
    with torch.no_grad():
        for (i, z), (j, x) in product(enumerate(continuations), enumerate(prompts)):
            logits = model(torch.tensor([[*x, *z]])).logits[0, len(x) - 1 : -1].float()
            sums[i, j] = logits.log_softmax(-1).gather(1, torch.tensor(z)[:, None]).double().sum()
    return sums


def sequences(*lengths: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in lengths]


PROMPTS, CONTINUATIONS = sequences(12, 1, 5, 3, seed=1), sequences(4, 1, 9, 2, 1, seed=2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("micro_batch_size", [2, 128])
def test_a_shared_prompt_gives_the_log_probs_of_single_sequences(family, micro_batch_size):
    model = random_model(family)
    sums, lengths = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=micro_batch_size)
    assert lengths.tolist() == [4, 1, 9, 2, 1]
    torch.testing.assert_close(sums, one_at_a_time(model, PROMPTS, CONTINUATIONS), atol=1e-4, rtol=1e-5)


def test_the_embedded_model_at_the_length_of_real_prompts():
    model = load_model(resolve_model("tiny", env_types=["frozen_lake"]), device="cpu")
    prompts, continuations = sequences(80, 330, seed=3), sequences(7, 40, 3, seed=4)
    sums, _ = cross_logprobs(model, prompts, continuations, micro_batch_size=128)
    torch.testing.assert_close(sums, one_at_a_time(model, prompts, continuations), atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize(
    "limit",
    ["learners.cross_scoring.MAX_TOKENS", "learners.cross_scoring.MAX_KEYS", "modeling.attention.padded.MAX_PAIRS"],
)
def test_small_pieces_give_the_same_matrix(limit, monkeypatch):
    model = random_model("gemma2_soft_cap")
    whole, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    monkeypatch.setattr(f"ragen.{limit}", 5)
    pieces, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    torch.testing.assert_close(pieces, whole, atol=1e-4, rtol=1e-5)


def test_half_precision_is_close():
    model = random_model("qwen2")
    exact, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    rounded = model.to(torch.bfloat16)
    sums, _ = cross_logprobs(rounded, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    reference = one_at_a_time(rounded, PROMPTS, CONTINUATIONS)
    assert (sums - exact).abs().mean() < 2 * (reference - exact).abs().mean()


def test_adapters_count():
    pytest.importorskip("peft")
    model = random_model("llama")
    plain = one_at_a_time(model, PROMPTS, CONTINUATIONS)
    add_adapter(model, LoraConfig(rank=4, alpha=8.0, target_modules="all-linear"), seed=1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.1)
    sums, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    torch.testing.assert_close(sums, one_at_a_time(model, PROMPTS, CONTINUATIONS), atol=1e-4, rtol=1e-5)
    assert (sums - plain).abs().max() > 0.1


def test_equal_prompts_and_equal_continuations_are_scored_once():
    model = random_model("qwen2")
    read: list[int] = []
    hook = model.base_model.embed_tokens.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].numel()))
    prompts, continuations = [[3, 4, 5], [6, 7], [3, 4, 5]], [[8, 9, 10], [8, 9, 10], [11]]
    sums, _ = cross_logprobs(model, prompts, continuations, micro_batch_size=128)
    hook.remove()
    assert read == [3 + 4 + 2 + 4]  # one pass: each prompt once, and two continuations of three tokens and one
    assert torch.equal(sums[:, 0], sums[:, 2]) and torch.equal(sums[0], sums[1])
    torch.testing.assert_close(sums, one_at_a_time(model, prompts, continuations), atol=1e-4, rtol=1e-5)


def test_one_pass_takes_many_prompts_and_reads_what_they_share_once():
    model = random_model("qwen2")
    read: list[int] = []
    hook = model.base_model.embed_tokens.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].numel()))
    (begin, *ends), continuations = sequences(20, 4, 5, seed=5), [[8, 9, 10, 11], [8, 9, 12], [13, 14]]
    prompts = [begin + end for end in ends]
    sums, _ = cross_logprobs(model, prompts, continuations, micro_batch_size=128)
    hook.remove()
    num_pairs = sum(len(prompt) + len(each) for prompt in prompts for each in continuations)
    num_trie = len(begin) + sum(len(end) + 4 + 1 + 2 for end in ends)  # 8, 9 stand once after each prompt
    assert read == [num_trie] and num_trie < num_pairs / 3
    torch.testing.assert_close(sums, one_at_a_time(model, prompts, continuations), atol=1e-4, rtol=1e-5)


def blocks_with_every_pair_once(*, micro_batch_size: int) -> tuple[list[Ids], list[Ids], list[Block]]:
    rows, columns = ([tuple(ids) for ids in found] for found in (CONTINUATIONS, PROMPTS))
    found = list(blocks(rows, columns, micro_batch_size=micro_batch_size))
    pairs = [(i, j) for block in found for i in block.rows for j in block.columns]
    assert sorted(pairs) == list(product(range(5), range(4)))
    return rows, columns, found


def test_blocks_hold_every_pair_once_within_their_tokens(monkeypatch):
    monkeypatch.setattr("ragen.learners.cross_scoring.MAX_TOKENS", 40)
    rows, columns, found = blocks_with_every_pair_once(micro_batch_size=3)
    for block in found:
        num_tokens = sum(len(columns[j]) + sum(len(rows[i]) for i in block.rows) for j in block.columns)
        assert len(block.rows) <= 3 and num_tokens <= 40


def test_blocks_hold_every_pair_once_within_their_keys(monkeypatch):
    monkeypatch.setattr("ragen.learners.cross_scoring.MAX_KEYS", 70)
    rows, columns, found = blocks_with_every_pair_once(micro_batch_size=5)
    for block in found:
        assert sum(len(columns[j]) + len(rows[i]) for j in block.columns for i in block.rows) <= 70
    # Behind the prompt of 12 tokens 5 thoughts have 5 * 12 + 17 = 77 keys; as long as the longest, 70 // (12 + 9) fit.
    assert [len(block.rows) for block in found if 0 in block.columns] == [3, 2]
    assert max(len(block.columns) for block in found) > 1


def test_a_rank_without_prompts_has_no_columns():
    sums, lengths = cross_logprobs(random_model("qwen2"), [], CONTINUATIONS, micro_batch_size=128)
    assert sums.shape == (5, 0) and lengths.tolist() == [4, 1, 9, 2, 1]


def test_distinct_items_keep_their_order():
    assert distinct(["a", "b", "a"]) == (["a", "b"], [0, 1, 0])


def test_scoring_leaves_no_trace():
    model = random_model("qwen2").train()
    model.base_model.norm.eval()
    modes = [module.training for module in model.modules()]
    model(torch.tensor([[3, 4, 5]])).logits.sum().backward()
    gradients = [weight.grad.clone() for weight in model.parameters()]
    random_state, attention = torch.get_rng_state(), model.config._attn_implementation
    first, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    again, _ = cross_logprobs(model, PROMPTS, CONTINUATIONS, micro_batch_size=128)
    assert torch.equal(first, again) and not first.requires_grad
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(weight.grad, old) for weight, old in zip(model.parameters(), gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert model.config._attn_implementation == attention
    with pytest.raises(IndexError):
        cross_logprobs(model, [[VOCAB + 5]], CONTINUATIONS, micro_batch_size=128)
    assert [module.training for module in model.modules()] == modes
    assert model.config._attn_implementation == attention
