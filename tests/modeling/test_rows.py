"""Rows that are looked up: the same gradient in every run, also with several threads."""

import torch

from ragen.modeling.rows import take_rows
from tests.threads import num_threads

REPEATS = 12
"""With `tensor[index]` a third of the repeats and more come out differently."""


def test_rows_are_taken_and_their_gradients_add_up():
    tensor = torch.tensor([[5.0], [6.0], [7.0]], requires_grad=True)
    rows = take_rows(tensor, torch.tensor([2, 0, 2]))
    assert rows.flatten().tolist() == [7, 5, 7]
    rows.backward(torch.tensor([[1.0], [2.0], [4.0]]))
    assert tensor.grad is not None and tensor.grad.flatten().tolist() == [2, 0, 5]


def test_the_gradient_of_taken_rows_is_the_same_every_time():
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 40, (4000,), generator=generator)
    grad = torch.randn(4000, 4, 32, generator=generator)
    found = []
    with num_threads(4):
        for _ in range(REPEATS):
            heads = torch.zeros(4, 40, 32, requires_grad=True)
            take_rows(heads.transpose(0, 1), index).backward(grad)
            found.append(heads.grad)
    assert all(one.equal(found[0]) for one in found)
