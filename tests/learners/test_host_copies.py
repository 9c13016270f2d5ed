"""Copies of tensors that training no longer changes."""

import pytest
import torch

from ragen.learners.host_copies import HostCopies

CPU = torch.device("cpu")


def test_a_copy_does_not_change_with_the_tensor():
    weight = torch.ones(3)
    copies = HostCopies(CPU)
    copied = copies.copy({"w": weight})
    weight += 1
    assert copied["w"].tolist() == [1, 1, 1]


def test_the_next_copy_takes_the_same_memory():
    copies = HostCopies(CPU)
    first = copies.copy({"w": torch.ones(3)})["w"]
    second = copies.copy({"w": torch.zeros(3)})["w"]
    assert first.data_ptr() == second.data_ptr() and first.tolist() == [0, 0, 0]


def test_tied_tensors_stay_one_and_count_once():
    weight = torch.ones(4)
    tensors = {"embedding": weight, "head": weight, "other": torch.ones(4)}
    copied = HostCopies(CPU).copy(tensors)
    assert copied["embedding"].data_ptr() == copied["head"].data_ptr() != copied["other"].data_ptr()
    assert HostCopies(CPU).num_missing_bytes(tensors) == 32


@pytest.mark.parametrize("later", [torch.ones(5), torch.ones(4, dtype=torch.bfloat16)])
def test_what_was_reserved_for_another_shape_is_replaced(later):
    copies = HostCopies(CPU)
    copies.reserve({"a": torch.empty(4, device="meta"), "b": torch.empty(4, device="meta")})
    copied = copies.copy({"a": later, "b": torch.ones(4)})
    assert torch.equal(copied["a"], later) and copied["a"].data_ptr() != copied["b"].data_ptr()
    copies.close()


def test_a_copy_has_the_numbers_of_a_transposed_tensor():
    weight = torch.arange(6.0).view(2, 3).T
    copied = HostCopies(CPU).copy({"w": weight})["w"]
    assert torch.equal(copied, weight) and copied.is_contiguous()


def test_what_is_held_is_not_missing():
    copies = HostCopies(CPU)
    copies.reserve({"a": torch.empty(4, device="meta")})
    like = {"a": torch.empty(4, device="meta"), "b": torch.empty(2, device="meta")}
    assert copies.num_missing_bytes(like) == 8
    assert copies.num_missing_bytes({"a": torch.empty(5, device="meta")}) == 20
    copies.close()
    assert copies.num_missing_bytes(like) == 24


def test_a_reservation_that_fails_is_raised_by_a_copy_and_not_by_the_end():
    copies = HostCopies(CPU)
    copies.reserve({"a": torch.ones(4), "b": torch.empty(10**15, device="meta")})
    assert copies.num_missing_bytes({"a": torch.ones(4)}) == 16, "nothing is held"
    with pytest.raises(RuntimeError, match="alloc"):
        copies.copy({"a": torch.ones(4)})
    copies.close()


def test_a_copy_that_fails_holds_nothing():
    copies = HostCopies(CPU)
    copies.copy({"a": torch.ones(4)})
    with pytest.raises(RuntimeError):
        copies.copy({"a": torch.ones(4), "b": torch.ones(1).expand(10**15)})
    assert copies.num_missing_bytes({"a": torch.ones(4)}) == 16
