"""Packed sequences against one sequence at a time."""

import pytest
import torch

from ragen.modeling.attention.packed import packed_attention
from ragen.modeling.model import hidden_states, logits_of
from ragen.modeling.packing import by_length, micro_batches, pack
from tests.engine.families import FAMILIES, VOCAB, random_model

LENGTHS = (5, 1, 12, 9)


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in LENGTHS]


def test_positions_start_anew_in_every_sequence():
    packing = pack([[5, 6, 7], [8]], torch.device("cpu"))
    assert packing.ids.tolist() == [[5, 6, 7, 8]]
    assert packing.position_ids.tolist() == [[0, 1, 2, 0]]
    assert packing.to_padded.tolist() == [[0, 1, 2], [3, 0, 0]]
    assert packing.to_packed.tolist() == [0, 1, 2, 3]


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
    def gradient(model) -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

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


def test_sampled_tokens_are_known_with_the_states_before_them():
    mask = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    packing = pack([[5, 6, 7], [8, 9]], torch.device("cpu"), mask=mask)
    assert packing.sampled.tolist() == [0, 1, 3]
    assert packing.targets.tolist() == [6, 7, 9]


def test_micro_batches_put_common_beginnings_together():
    assert micro_batches([[5, 6], [1], [5, 7], [2]], max_samples=2) == [[1, 3], [0, 2]]
    assert micro_batches([[5, 6], [1], [5, 7], [2]], max_tokens=3) == [[1, 3], [0], [2]]


def test_batches_by_length_put_similar_lengths_together():
    assert by_length([5, 1, 4, 2], max_samples=2, max_tokens=9) == [[1, 3], [2, 0]]
    assert by_length([5, 1, 4, 2], max_samples=4, max_tokens=6) == [[1, 3], [2], [0]]
