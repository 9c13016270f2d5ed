"""What a query may look at, with numbers."""

import torch

from ragen.modeling.attention.masks import additive, hidden_keys, soft_cap


def test_later_keys_are_hidden_and_those_beyond_the_window():
    queries, keys = torch.tensor([[1], [2]]), torch.arange(3)
    assert hidden_keys(queries, keys, None).tolist() == [[False, False, True], [False, False, False]]
    assert hidden_keys(queries, keys, 2).tolist() == [[False, False, True], [True, False, False]]
    assert hidden_keys(queries, keys, 1).tolist() == [[True, False, True], [True, True, False]]


def test_what_is_hidden_gets_minus_infinity():
    mask = additive(torch.tensor([[True, False]]), torch.float64)
    assert mask.dtype == torch.float64 and mask.tolist() == [[-float("inf"), 0.0]]


def test_a_soft_cap_bounds_large_scores_and_leaves_small_ones():
    scores = torch.tensor([-1000.0, 0.01, 1000.0])
    assert soft_cap(scores, None) is scores
    torch.testing.assert_close(soft_cap(scores, 5.0), torch.tensor([-5.0, 0.01, 5.0]))
