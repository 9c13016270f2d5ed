"""KL estimators, KL in the reward and the controllers of its weight."""

from __future__ import annotations

import json
import math
from typing import get_args

import pytest
import torch

from ragen.algorithms.kl import (
    KL_ESTIMATORS,
    KlController,
    full_kl,
    kl_in_reward,
    token_kl,
)
from ragen.config.actor_rollout_ref import KlName
from ragen.config.trainer import KlCtrlConfig

LOGPROBS = torch.tensor([-1.0, -2.0, -0.5])
REF = torch.tensor([-1.5, -1.0, -0.5])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("kl", "k1", "k1+"), [0.5, -1, 0]),
        (("abs",), [0.5, 1, 0]),
        (("mse", "k2", "k2+"), [0.125, 0.5, 0]),
        (("low_var_kl", "k3", "k3+"), [0.106531, 0.718282, 0]),
    ],
)
def test_estimators_on_the_vector_of_the_specification(names, expected):
    for name in names:
        assert token_kl(LOGPROBS, REF, name).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k1", [1, 1, 1]),
        ("k2", [0.5, -1, 0]),
        ("k3", [1 - math.exp(-0.5), 1 - math.exp(1), 0]),
        ("k1+", [0.5, -1, 0]),
        ("k3+", [0.5, -1, 0]),
        ("abs+", [0.5, -1, 0]),
    ],
)
def test_a_plus_brings_the_gradient_of_k2(name, expected):
    lp = LOGPROBS.clone().requires_grad_()
    token_kl(lp, REF, name).sum().backward()
    assert lp.grad.tolist() == pytest.approx(expected, abs=1e-6)


def test_k3_is_bounded():
    far = token_kl(torch.tensor([-100.0, 0.0]), torch.tensor([0.0, -100.0]), "k3")
    assert far.tolist() == [10.0, 10.0]


def test_every_choice_of_the_config_is_known():
    assert {name.removesuffix("+") for name in get_args(KlName)} == {*KL_ESTIMATORS, "full"}


def test_the_full_kl_sums_over_the_vocabulary():
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert full_kl(p, q).tolist() == pytest.approx([0.5 * math.log(2) + 0.5 * math.log(2 / 3)])
    assert full_kl(p, p).tolist() == [0.0]


def test_the_estimators_agree_with_the_full_kl_in_expectation():
    torch.manual_seed(0)
    p, q = (0.5 * torch.randn(5)).log_softmax(0), (0.5 * torch.randn(5)).log_softmax(0)  # k3 stays below its bound
    exact = full_kl(p, q)
    for name in ("k1", "k3"):
        assert torch.allclose((p.exp() * token_kl(p, q, name)).sum(), exact, atol=1e-6)


def test_the_expected_gradient_is_right_for_k2_and_missing_for_k1():
    torch.manual_seed(0)
    ref = torch.randn(5).log_softmax(0)

    def gradient(name: str) -> torch.Tensor:
        """Of the mean over the policy's own samples, by the logits."""
        logits = torch.tensor([0.3, -0.2, 0.5, 0.0, 1.0], requires_grad=True)
        lp = logits.log_softmax(0)
        value = full_kl(lp, ref) if name == "full" else (lp.detach().exp() * token_kl(lp, ref, name)).sum()
        value.backward()
        return logits.grad

    exact = gradient("full")
    assert torch.allclose(gradient("k1"), torch.zeros(5), atol=1e-6)
    for name in ("k2", "k1+", "k3+"):
        assert torch.allclose(gradient(name), exact, atol=1e-6)


def test_the_penalty_lies_on_sampled_tokens():
    scores, kl = torch.tensor([[0.0, 0, 1], [0, 2, 0]]), torch.tensor([[0.5, 9, 0.1], [0.2, 0.4, 9]])
    mask = torch.tensor([[1.0, 0, 1], [1, 1, 0]])
    rewards, current = kl_in_reward(scores, kl, mask, beta=0.1)
    assert torch.allclose(rewards, torch.tensor([[-0.05, 0, 0.99], [-0.02, 1.96, 0]]))
    assert current == pytest.approx(0.3)  # rows .3 and .3


def controller_of(kind: str, *, kl_coef: float, horizon: int, state: dict | None = None) -> KlController:
    return KlController.from_config(KlCtrlConfig(type=kind, kl_coef=kl_coef, horizon=horizon, target_kl=0.1), state)


def test_the_adaptive_weight_on_the_vector_of_the_specification():
    controller = controller_of("adaptive", kl_coef=0.001, horizon=10000)
    controller.update(0.3, 128)
    assert controller.value == pytest.approx(0.00100256)
    controller.update(0.09, 100)  # 10 % below the target
    assert controller.value == pytest.approx(0.00100256 * (1 - 0.1 * 0.01))


def test_the_fixed_weight_stays():
    controller = controller_of("fixed", kl_coef=0.001, horizon=10000)
    controller.update(5.0, 128)
    assert controller.value == 0.001


@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
def test_a_controller_continues_exactly_where_it_stood(kind):
    options = {"kl_coef": 0.1, "horizon": 7}
    whole, first = controller_of(kind, **options), controller_of(kind, **options)
    for kl in (0.3, 0.05):
        whole.update(kl, 3)
        first.update(kl, 3)
    second = controller_of(kind, **options, state=json.loads(json.dumps(first.to_json())))
    whole.update(0.11, 3)
    second.update(0.11, 3)
    assert second.value == whole.value
