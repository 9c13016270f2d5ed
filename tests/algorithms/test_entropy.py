"""Chunked log-probs and entropies against their plain twins, gradients included."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ragen.algorithms.entropy import head_logprobs


def test_entropies_worked_by_hand():
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]])
    expected = [math.log(2), math.log(4) - 0.75 * math.log(3)]
    _, entropy = head_logprobs(logits, lambda states: states, torch.tensor([0, 0]))
    assert entropy.tolist() == pytest.approx(expected)


def test_logprobs_worked_by_hand():
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]])
    logprobs, _ = head_logprobs(logits, lambda states: states, torch.tensor([1, 1]))
    assert logprobs.tolist() == pytest.approx([-math.log(2), math.log(0.75)])


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1000.0, 1000.0, -1000.0]])
    _, entropy = head_logprobs(logits, lambda states: states, torch.tensor([0]))
    assert entropy.tolist() == pytest.approx([math.log(2)], abs=0.1)  # a difference of numbers near 1000


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 3, 64])
def test_head_logprobs_equal_the_plain_version_with_their_gradients(chunk_size, with_entropy):
    torch.manual_seed(0)
    head = torch.nn.Linear(5, 11)
    hidden = torch.randn(8, 5, requires_grad=True)
    targets = torch.randint(11, (8,))
    weights, entropy_weights = torch.randn(8), torch.randn(8)
    inputs = (hidden, head.weight, head.bias)

    logits = head(hidden) / 0.7
    plain = -cross_entropy(logits, targets, reduction="none")
    plain_entropy = torch.distributions.Categorical(logits=logits).entropy()
    loss = (plain * weights).sum() + with_entropy * (plain_entropy * entropy_weights).sum()
    expected = torch.autograd.grad(loss, inputs)

    logprobs, entropy = head_logprobs(hidden, head, targets, temperature=0.7, chunk_size=chunk_size)
    loss = (logprobs * weights).sum()
    assert torch.allclose(entropy, plain_entropy, atol=1e-6)
    if with_entropy:
        loss = loss + (entropy * entropy_weights).sum()
    assert torch.allclose(logprobs, plain, atol=1e-6)
    for gradient, wanted in zip(torch.autograd.grad(loss, inputs), expected):
        assert torch.allclose(gradient, wanted, atol=1e-5)


def test_an_entropy_that_only_is_measured_has_no_gradient():
    hidden = torch.randn(4, 3, requires_grad=True)
    logprobs, entropy = head_logprobs(hidden, torch.nn.Linear(3, 5), torch.zeros(4, dtype=torch.long))
    (gradient,) = torch.autograd.grad(logprobs.sum(), hidden, retain_graph=True)
    (both,) = torch.autograd.grad(logprobs.sum() + 0.0 * entropy.sum(), hidden)
    assert torch.allclose(gradient, both)


def test_the_head_alone_can_be_trained():
    head = torch.nn.Linear(3, 5)
    head_logprobs(torch.randn(4, 3), head, torch.zeros(4, dtype=torch.long))[0].sum().backward()
    assert head.weight.grad.abs().sum() > 0


def test_only_one_chunk_of_logits_exists_at_a_time():
    sizes = []

    def head(states: torch.Tensor) -> torch.Tensor:
        sizes.append(len(states))
        return states @ weight

    weight = torch.randn(3, 50, requires_grad=True)
    hidden = torch.randn(10, 3, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        logprobs, _ = head_logprobs(hidden, head, torch.zeros(10, dtype=torch.long), chunk_size=4)
        assert sizes == [4, 4, 2]
        assert max(kept, default=0) < 4 * 50  # no logits are kept for the backward pass
        logprobs.sum().backward()
    assert sorted(sizes[3:]) == [2, 4, 4]


def test_a_word_that_is_ruled_out_has_probability_zero():
    def head(states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states, torch.full((len(states), 1), -torch.inf)], dim=-1)

    hidden = torch.zeros(2, 2, requires_grad=True)
    logprobs, entropy = head_logprobs(hidden, head, torch.tensor([0, 1]))
    assert entropy.tolist() == pytest.approx([math.log(2)] * 2)
    (logprobs.sum() + entropy.sum()).backward()
    assert hidden.grad.tolist() == [[0.5, -0.5], [-0.5, 0.5]]  # of the log-probs; the entropy is at its maximum


def test_half_precision_is_summed_in_single_precision():
    hidden = torch.randn(6, 4).bfloat16()
    head = torch.nn.Linear(4, 9).bfloat16()
    targets = torch.randint(9, (6,))
    logprobs, entropy = head_logprobs(hidden, head, targets)
    assert logprobs.dtype == entropy.dtype == torch.float32
    assert torch.allclose(logprobs, -cross_entropy(head(hidden).float(), targets, reduction="none"))


def test_no_tokens_are_no_error():
    logprobs, entropy = head_logprobs(torch.zeros(0, 3), torch.nn.Linear(3, 5), torch.zeros(0, dtype=torch.long))
    assert logprobs.shape == entropy.shape == (0,)
