"""Packed sequences against one sequence at a time."""

import pytest
import torch

from ragen.modeling.packing import pack, packed_attention
from ragen.modeling.passes import hidden_states, logits_of, masked_rows, masked_targets
from tests.engine.families import FAMILIES, VOCAB, random_model

LENGTHS = (5, 1, 12, 9)


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(3, VOCAB, (length,), generator=generator).tolist() for length in LENGTHS]


def test_positions_start_anew_in_every_sequence():
    ids, packing = pack([[5, 6, 7], [8]], torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7, 8]]
    assert packing.position_ids.tolist() == [[0, 1, 2, 0]]
    assert packing.offsets.tolist() == [0, 3, 4]
    assert packing.to_padded.tolist() == [[0, 1, 2], [3, 0, 0]]
    assert packing.to_packed.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_logits_equal_those_of_single_sequences(family):
    model = random_model(family)
    ids, packing = pack(sequences(), torch.device("cpu"))
    with torch.no_grad(), packed_attention(model, packing):
        packed = logits_of(model, hidden_states(model, ids, packing))
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
    ids, packing = pack(sequences(), torch.device("cpu"))
    with packed_attention(model, packing):
        logits_of(model, hidden_states(model, ids, packing)).square().mean().backward()
    twin = random_model(family).eval()
    total = sum(LENGTHS)
    for sequence in sequences():
        (twin(torch.tensor([sequence])).logits.square().mean() * len(sequence) / total).backward()
    torch.testing.assert_close(gradient(model), gradient(twin), atol=1e-4, rtol=1e-3)


def test_masked_rows_point_at_the_state_before_each_sampled_token():
    ids = [[5, 6, 7], [8, 9]]
    _, packing = pack(ids, torch.device("cpu"))
    mask = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    assert masked_rows(mask, packing).tolist() == [0, 1, 3]
    assert masked_targets(ids, mask).tolist() == [6, 7, 9]
