"""Estimators by name, and what follows them."""

from __future__ import annotations

import pytest
import torch

from ragen.algorithms.advantage import (
    ESTIMATORS,
    AdvantageInputs,
    compute_advantages,
    postprocess,
    relative_lengths,
    soft_weights,
)
from ragen.config.estimators import ESTIMATORS as DECLARED
from tests.algorithms.group_numbers import numbers, one_token


def batch(**changes) -> AdvantageInputs:
    torch.manual_seed(1)
    mask = (torch.rand(6, 9) < 0.6).float()
    mask[:, 0] = 1
    values = {
        "token_rewards": torch.randn(6, 9) * mask,
        "mask": mask,
        "groups": torch.tensor([0, 0, 0, 1, 1, 1]),
        "episodes": torch.arange(6),
        "entropies": torch.rand(6, 9),
        "values": torch.randn(6, 9),
        "turn_ends": mask,
        "turn_ids": torch.where(mask.bool(), 0, -1),
        "anchors": torch.zeros(6, 1, dtype=torch.long),
        "step_returns": torch.randn(6, 1),
    }
    return AdvantageInputs(**(values | changes))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_runs_by_name_and_is_zero_outside_the_mask(name):
    inputs = batch()
    for tensor in compute_advantages(name, inputs):
        assert tensor.shape == inputs.mask.shape
        assert tensor.isfinite().all()
        assert (tensor[inputs.mask == 0] == 0).all()


@pytest.mark.parametrize("field", ["values", "turn_ends"])
def test_an_estimator_says_what_it_misses(field):
    with pytest.raises(AssertionError, match=f"bi_level_gae needs {field}"):
        compute_advantages("bi_level_gae", batch(**{field: None}))


def test_the_config_offers_every_estimator():
    switched = {declared.bi_level for declared in DECLARED.values() if declared.bi_level}
    assert switched == {"bi_level_gae"}
    assert set(DECLARED) | switched == set(ESTIMATORS)


@pytest.mark.parametrize("name", DECLARED)
def test_an_estimator_reads_no_more_than_it_declares(name):
    needed = {"values": {"values"}, "turns": {"turn_ids", "anchors", "step_returns"}}
    optional = set().union(*needed.values())
    given = set().union(*(needed[need] for need in DECLARED[name].needs))
    compute_advantages(name, batch(**dict.fromkeys(optional - given)))
    for field in given:
        with pytest.raises(AssertionError, match=f"needs {field}"):
            compute_advantages(name, batch(**{field: None}))


def test_soft_weights_are_relative_to_the_most_varied_group():
    rewards, mask = one_token(0, 2, 0, 4, 3, 3)
    inputs = AdvantageInputs(
        token_rewards=rewards, mask=mask, groups=torch.tensor([0, 0, 1, 1, 2, 2]), episodes=numbers(6)
    )
    assert soft_weights(inputs).tolist() == pytest.approx([0.5, 0.5, 1, 1, 0, 0], abs=1e-6)


def test_relative_lengths_average_one():
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1]])
    assert relative_lengths(mask).tolist() == pytest.approx([0.5, 1.5], abs=1e-5)


def test_post_processing_multiplies_in_the_order_of_the_specification():
    rewards = torch.tensor([[0.0, 0, 0], [2, 0, 0], [0, 0, 0], [4, 0, 0]])
    mask = torch.tensor([[1.0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]])
    inputs = AdvantageInputs(token_rewards=rewards, mask=mask, groups=torch.tensor([0, 0, 1, 1]), episodes=numbers(4))
    advantages, metrics = postprocess(
        mask, inputs, soft_reweight=True, filter_loss_scaling="sqrt", kept_ratio=0.25, length_weight=True
    )
    # Group weights .5 and 1, times sqrt(.25), over relative lengths .5 and 1.5.
    assert advantages[:, 0].tolist() == pytest.approx([0.5, 1 / 6, 1, 1 / 3], abs=1e-5)
    assert metrics == pytest.approx(
        {"soft_reweight_min": 0.5, "soft_reweight_max": 1.0, "soft_reweight_mean": 0.75}, abs=1e-6
    )


@pytest.mark.parametrize(("mode", "factor"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_the_filter_scales_advantages_by_the_kept_share(mode, factor):
    inputs = batch()
    advantages, metrics = postprocess(inputs.mask, inputs, filter_loss_scaling=mode, kept_ratio=0.25)
    assert torch.equal(advantages, inputs.mask * factor)
    assert metrics == {}


def test_zero_task_advantage_comes_last():
    inputs = batch()
    advantages, metrics = postprocess(inputs.mask, inputs, soft_reweight=True, zero_task_advantage=True)
    assert advantages.abs().max() == 0
    assert "soft_reweight_max" in metrics
