"""Policy and value losses on numbers worked by hand and the vectors of the specification."""

from __future__ import annotations

import math

import pytest
import torch

from ragen.algorithms.losses import POLICY_LOSSES, PolicyInputs, importance_weights, value_loss
from ragen.config.actor_rollout_ref import POLICY_LOSSES as NAMES

CLIP = {"clip_low": 0.2, "clip_high": 0.28, "clip_c": 3.0}
RATIOS = torch.tensor([[1.5, 0.5, 1.5, 0.5, 5.0]])
ADVANTAGES = torch.tensor([[1.0, 1, -1, -1, -1]])


def logprobs(ratios: torch.Tensor) -> torch.Tensor:
    return ratios.log().requires_grad_()


def policy_loss(name: str, logprobs, old_logprobs, advantages, mask, **clip: float):
    """The loss and the metrics of each token, by the loss of that name."""
    inputs = PolicyInputs(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages, mask=mask, **clip)
    return POLICY_LOSSES[name](inputs)


def zeros_and_mask(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros_like(like), torch.ones_like(like)


def test_ppo_on_the_vector_of_the_specification():
    old, mask = zeros_and_mask(RATIOS)
    loss, metrics = policy_loss("ppo", logprobs(RATIOS), old, ADVANTAGES, mask, **CLIP)
    assert loss[0].tolist() == pytest.approx([-1.28, -0.5, 1.5, 0.8, 3.0])
    assert metrics["pg_clipfrac"].mean().item() == pytest.approx(0.4)
    assert metrics["pg_clipfrac_lower"].mean().item() == pytest.approx(0.2)
    assert metrics["ppo_kl"][0].tolist() == pytest.approx([-math.log(r) for r in (1.5, 0.5, 1.5, 0.5, 5)])


def test_only_unclipped_tokens_have_a_gradient_in_ppo():
    lp = logprobs(RATIOS)
    old, mask = zeros_and_mask(RATIOS)
    policy_loss("ppo", lp, old, ADVANTAGES, mask, **CLIP)[0].sum().backward()
    assert lp.grad[0].tolist() == pytest.approx([0, -0.5, 1.5, 0, 0])


def test_a_hopeless_token_does_not_overflow():
    old, mask = zeros_and_mask(torch.zeros(1, 2))
    loss, _ = policy_loss("ppo", torch.tensor([[500.0, -500.0]]), old, torch.tensor([[-1.0, 1.0]]), mask, **CLIP)
    assert loss[0].tolist() == pytest.approx([3, 0], abs=1e-6)  # the dual clip; a ratio of exp(-20)


def test_gspo_has_one_ratio_per_sequence():
    lp = torch.tensor([[0.1, 9.0, 0.3], [-0.4, -0.2, 9.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 0, 1], [1, 1, 0]])
    advantages = torch.tensor([[1.0], [-2.0]]) * torch.ones(2, 3)
    loss, metrics = policy_loss("gspo", lp, torch.zeros(2, 3), advantages, mask, clip_low=1.0, clip_high=1.0, clip_c=3)
    assert loss[0, 0].item() == loss[0, 2].item() == pytest.approx(-math.exp(0.2))
    assert loss[1, 0].item() == loss[1, 1].item() == pytest.approx(2 * math.exp(-0.3))
    assert metrics["ppo_kl"][0, 0].item() == pytest.approx(-0.1)


def test_the_gradient_of_gspo_is_that_of_the_geometric_mean():
    start = torch.tensor([[0.1, 0.5, 0.3]])
    mask, advantage = torch.tensor([[1.0, 0, 1]]), 1.7
    lp = start.clone().requires_grad_()
    loss, _ = policy_loss(
        "gspo", lp, torch.zeros(1, 3), torch.full((1, 3), advantage), mask, clip_low=1, clip_high=1, clip_c=3
    )
    (loss * mask).sum().div(2).backward()  # seq-mean-token-mean
    other = start.clone().requires_grad_()
    (-advantage * ((other * mask).sum() / 2).exp()).backward()
    assert torch.allclose(lp.grad, other.grad)


def test_gspo_clips_whole_sequences():
    lp = torch.tensor([[0.0, 0.6], [0.0, 0.2]], requires_grad=True)  # ratios exp(.3) and exp(.1)
    old, mask = zeros_and_mask(lp)
    loss, metrics = policy_loss("gspo", lp, old, mask, mask, clip_low=0.2, clip_high=0.2, clip_c=3)
    assert metrics["pg_clipfrac"].tolist() == [[1, 1], [0, 0]]
    loss.sum().backward()
    assert lp.grad[0].tolist() == [0, 0] and lp.grad[1].abs().min() > 1


def test_cispo_bounds_the_weight_but_keeps_the_gradient():
    lp = logprobs(RATIOS)
    old, mask = zeros_and_mask(RATIOS)
    loss, metrics = policy_loss("cispo", lp, old, ADVANTAGES, mask, **CLIP)
    loss.sum().backward()
    assert lp.grad[0].tolist() == pytest.approx([-1.28, -0.8, 1.28, 0.8, 1.28])
    assert metrics["pg_clipfrac"].mean().item() == 1.0


def test_sapo_fades_where_ppo_clips():
    lp = logprobs(RATIOS)
    old, mask = zeros_and_mask(RATIOS)
    loss, metrics = policy_loss("sapo", lp, old, ADVANTAGES, mask, **CLIP)
    # 4 sigmoid(.5), 4 sigmoid(-.5), then with tau 1.05: 4 / 1.05 * sigmoid(1.05 * (ratio - 1))
    assert loss[0].tolist() == pytest.approx([-2.4898, -1.5102, 2.3936, 1.4159, 3.7532], abs=1e-4)
    loss.sum().backward()
    # -A * ratio * 4 p (1 - p): the farther from 1, the weaker, and never 0.
    assert lp.grad[0].tolist() == pytest.approx([-1.4100, -0.4700, 1.4012, 0.4671, 0.2911], abs=1e-4)
    assert metrics["pg_clipfrac"].sum() == metrics["pg_clipfrac_lower"].sum() == 0


def test_sapo_damps_what_is_to_become_rarer_more():
    lp = logprobs(torch.tensor([[3.0, 3.0]]))
    old, mask = zeros_and_mask(lp)
    policy_loss("sapo", lp, old, torch.tensor([[1.0, -1.0]]), mask, **CLIP)[0].sum().backward()
    assert 0 < lp.grad[0, 1] < -lp.grad[0, 0]


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_on_policy_every_loss_has_the_policy_gradient(name):
    old = torch.randn(3, 4)
    advantages, mask = torch.randn(3, 1).expand(3, 4), torch.ones(3, 4)
    lp = old.clone().requires_grad_()
    loss, metrics = policy_loss(name, lp, old, advantages, mask, **CLIP)
    loss.sum().backward()
    assert torch.allclose(lp.grad, -advantages, atol=1e-6)
    assert metrics["pg_clipfrac"].sum() == 0
    assert set(metrics) == {"pg_clipfrac", "pg_clipfrac_lower", "ppo_kl"}
    assert not any(metric.requires_grad for metric in metrics.values())


def test_the_config_offers_every_policy_loss():
    assert set(NAMES) == set(POLICY_LOSSES)


def test_the_value_loss_takes_the_worse_of_both_errors():
    values = torch.tensor([2.0, 1.2, 0.0], requires_grad=True)
    loss, metrics = value_loss(values, torch.ones(3), torch.tensor([2.0, 2.0, 1.0]), cliprange=0.5)
    # Clipped values 1.5, 1.2, .5: squared errors max(0, .25), .64, max(1, .25).
    assert loss.tolist() == pytest.approx([0.125, 0.32, 0.5])
    assert metrics["vf_clipfrac"].tolist() == [1, 0, 0]
    loss.sum().backward()
    assert values.grad.tolist() == pytest.approx([0, -0.8, -1])


def test_a_value_within_the_range_never_counts_as_clipped():
    torch.manual_seed(0)
    old = torch.randn(1000)
    metrics = value_loss(old + 0.4 * torch.rand(1000), old, torch.randn(1000), cliprange=0.5)[1]
    assert metrics["vf_clipfrac"].sum() == 0


def test_importance_weights_are_capped_ratios_without_gradient():
    old = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    weights = importance_weights(old, torch.tensor([-1.1, -3.0, -1.0]), cap=2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.1), 2.0, 1.0])
    assert not weights.requires_grad
