"""Masked statistics and loss weights, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ragen.algorithms.masked import LOSS_AGG_MODES, masked_mean, masked_var, masked_whiten, token_weights

MASK = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
VALUES = torch.tensor([[1.0, 9.0, 2.0], [9.0, 6.0, 9.0]])


def test_the_mean_sees_only_the_mask():
    assert masked_mean(VALUES, MASK).item() == pytest.approx(3.0)
    assert masked_mean(VALUES, MASK, dim=-1).tolist() == pytest.approx([1.5, 6.0])
    assert masked_mean(VALUES, torch.zeros_like(MASK)).item() == 0.0


def test_the_variance_divides_by_n_minus_one():
    # 1, 2, 6: mean 3, squares 4 + 1 + 9.
    assert masked_var(VALUES, MASK).item() == pytest.approx(7.0)


def test_whitened_values_have_mean_zero_and_variance_one_and_vanish_outside():
    white = masked_whiten(VALUES, MASK)
    assert white[MASK.bool()].tolist() == pytest.approx([-2 / math.sqrt(7), -1 / math.sqrt(7), 3 / math.sqrt(7)])
    assert white[~MASK.bool()].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mask", [[[0.0, 0.0]], [[1.0, 0.0]]])
def test_fewer_than_two_tokens_cannot_be_whitened(mask):
    with pytest.raises(ValueError, match="at least two masked tokens"):
        masked_whiten(torch.ones(1, 2), torch.tensor(mask))


def test_equal_values_are_whitened_to_zero():
    assert masked_whiten(torch.full((2, 3), 0.1), MASK).abs().max() < 1e-3


def test_nothing_outside_the_mask_matters_not_even_nan():
    values = VALUES.masked_fill(MASK == 0, float("nan"))
    assert masked_mean(values, MASK).item() == pytest.approx(3.0)
    assert torch.equal(masked_whiten(values, MASK), masked_whiten(VALUES, MASK))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", [[1 / 3, 0, 1 / 3], [0, 1 / 3, 0], [0, 0, 0]]),
        ("seq-mean-token-sum", [[1 / 2, 0, 1 / 2], [0, 1 / 2, 0], [0, 0, 0]]),
        ("seq-mean-token-mean", [[1 / 4, 0, 1 / 4], [0, 1 / 2, 0], [0, 0, 0]]),
        ("seq-mean-token-sum-norm", [[1 / 6, 0, 1 / 6], [0, 1 / 6, 0], [0, 0, 0]]),
    ],
)
def test_weights_of_two_sequences_and_one_without_a_token(mode, expected):
    mask = torch.cat([MASK, torch.zeros(1, 3)])
    assert torch.allclose(token_weights(mask, mode), torch.tensor(expected))


def test_every_mode_is_a_choice_of_the_config():
    from typing import get_args

    from ragen.config.actor_rollout_ref import LossAggMode

    assert set(LOSS_AGG_MODES) == set(get_args(LossAggMode))


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_micro_batches_sum_to_the_loss_of_the_mini_batch(mode):
    torch.manual_seed(0)
    mask, loss = (torch.rand(7, 11) < 0.4).float(), torch.randn(7, 11)
    weights = token_weights(mask, mode)
    whole = (loss * weights).sum()
    parts = [(loss[rows] * weights[rows]).sum() for rows in ([0, 3], [1], [2, 4, 5, 6])]
    assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-6)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_an_empty_mask_weighs_nothing(mode):
    assert token_weights(torch.zeros(2, 3), mode).tolist() == [[0.0] * 3] * 2


def test_the_horizon_fixes_the_divisor_whatever_the_padding():
    wide = torch.nn.functional.pad(MASK, (0, 5))
    narrow, padded = (token_weights(m, "seq-mean-token-sum-norm", horizon=10) for m in (MASK, wide))
    assert torch.equal(narrow, padded[:, :3])
