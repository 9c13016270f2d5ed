"""Passes: what goes together, what is prepared once, and how the model is left."""

import pickle
from functools import partial

import pytest
import torch

from ragen.modeling import packing as packing_module
from ragen.modeling.attention.packed import PACKED
from ragen.modeling.model import hidden_states
from ragen.modeling.packing import Packings, micro_batches
from ragen.modeling.passes import Pass, passes
from ragen.modeling.team import Share, Team
from tests.engine.families import random_model

SEQUENCES = [[5, 6, 7], [8, 9], [5, 6, 8, 9]]
MASK = torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
PAIRS = partial(micro_batches, max_samples=2)


def walk(model, *, split=PAIRS, packings: Packings | None = None) -> list[Pass]:
    return list(passes(model, SEQUENCES, split, mask=MASK, packings=packings))


def test_sequences_of_a_pass_are_packed_with_the_mask_of_their_own_length():
    found = walk(random_model("qwen2"))
    assert [each.indices for each in found] == [[0, 2], [1]]
    assert [each.packing.lengths for each in found] == [[3, 4], [2]]
    assert [each.packing.targets.tolist() for each in found] == [[6, 7, 9], [9]]
    assert [each.mask.tolist() for each in found if each.mask is not None] == [MASK[[0, 2]].tolist(), [[0.0, 1.0]]]


def test_attention_is_switched_during_a_pass_and_back_after_it():
    model = random_model("qwen2")
    before = model.config._attn_implementation
    for each in passes(model, SEQUENCES, PAIRS, mask=MASK):
        assert model.config._attn_implementation == PACKED.name
        hidden_states(model, each.packing)
    assert model.config._attn_implementation == before
    with pytest.raises(RuntimeError, match="in the middle"):
        for _ in passes(model, SEQUENCES, PAIRS, mask=MASK):
            raise RuntimeError("in the middle")
    assert model.config._attn_implementation == before


def test_passes_over_the_same_sequences_share_their_packing():
    model, packings = random_model("qwen2"), Packings()
    first, second = walk(model, packings=packings), walk(model, packings=packings)
    assert all(a.packing is b.packing for a, b in zip(first, second, strict=True))
    (other,) = walk(model, split=partial(micro_batches, max_samples=3), packings=packings)
    assert other.packing.lengths == [3, 4, 2]


def test_equal_sequences_with_other_masks_are_packed_anew():
    packings, cpu = Packings(), torch.device("cpu")
    first = packings.pack([[5, 6, 7]], cpu, mask=torch.tensor([[0.0, 1.0, 0.0]]))
    second = packings.pack([[5, 6, 7]], cpu, mask=torch.tensor([[0.0, 0.0, 1.0]]))
    assert (first.targets.tolist(), second.targets.tolist()) == ([6], [7])


def test_what_is_kept_is_bounded_and_does_not_travel(monkeypatch):
    monkeypatch.setattr(packing_module, "MAX_CELLS", 8)
    model, packings = random_model("qwen2"), Packings()
    first, second = walk(model, packings=packings), walk(model, packings=packings)
    assert [a.packing is b.packing for a, b in zip(first, second, strict=True)] == [True, False]
    copy = pickle.loads(pickle.dumps(packings))
    assert walk(model, packings=copy)[0].packing is not first[0].packing


class Late(Team):
    """A rank that has nothing to do while others have."""

    def shares(self, sequences, split):
        yield Share(indices=[1], is_spare=True)


def test_a_rank_without_work_passes_a_sequence_that_does_not_count():
    (each,) = passes(random_model("qwen2"), SEQUENCES, PAIRS, mask=MASK, team=Late())
    assert (each.indices, each.is_spare) == ([1], True)
