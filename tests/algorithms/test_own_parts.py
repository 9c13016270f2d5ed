"""Estimators, losses and filter strategies of one's own: what is accepted, and what each mistake is told."""

import pytest
import torch

from ragen.algorithms.advantage import AdvantageInputs, compute_advantages
from ragen.algorithms.filter_strategies import FilterSettings, select
from ragen.algorithms.own_parts import check_estimator, check_policy_loss, check_strategy, checked_estimates
from ragen.errors import ConfigError

OWN = "tests.api.own"


@pytest.mark.parametrize("name", ["loo", "above_values"])
def test_an_estimator_that_keeps_to_the_rules_is_accepted(name):
    check_estimator(f"{OWN}:{name}")


def test_an_estimator_of_ones_own_is_used():
    """Rewards 1 and 3 in one group: each less the other."""
    ones = torch.ones(2, 1)
    inputs = AdvantageInputs(
        token_rewards=torch.tensor([[1.0], [3.0]]), mask=ones, groups=torch.tensor([0, 0]), episodes=torch.arange(2)
    )
    advantages, returns = compute_advantages(f"{OWN}:loo", inputs)
    assert advantages.tolist() == [[-2.0], [2.0]] == returns.tolist()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("undeclared", r"it reads values and does not say so\. Write @ragen\.needs\('values'\) above it"),
        ("misspelt", r"its parameter token_reward is no field of AdvantageInputs .*Did you mean token_rewards"),
        ("flat", r"on a batch of shape \(4, 3\) it returned \(Tensor \[4\], Tensor \[4\]\)"),
        ("raising", r"it failed on a small batch with ZeroDivisionError"),
    ],
)
def test_an_estimator_that_cannot_work_is_refused(name, message):
    with pytest.raises(ConfigError, match=rf"algorithm\.adv_estimator={OWN}:{name}: {message}"):
        check_estimator(f"{OWN}:{name}")


@pytest.mark.parametrize(
    ("advantages", "message"),
    [
        (torch.tensor([[1.0], [2.0]]), r"\(2, 3\) it returned \(Tensor \[2, 1\], Tensor \[2, 3\]\)"),
        (torch.full((2, 3), torch.nan), r"\(2, 3\) it returned \(Tensor \[2, 3\] with numbers that are not finite"),
    ],
)
def test_an_estimator_that_fails_on_a_later_batch_is_named(advantages, message):
    mask = torch.ones(2, 3)
    with pytest.raises(ConfigError, match=rf"algorithm\.adv_estimator={OWN}:loo: on a batch of shape {message}"):
        checked_estimates(f"{OWN}:loo", (advantages, mask), mask)
    assert checked_estimates(f"{OWN}:loo", (mask, mask), mask) == (mask, mask)


@pytest.mark.parametrize("name", ["my_loss", "reinforce"])
def test_a_loss_that_keeps_to_the_rules_is_accepted(name):
    check_policy_loss(f"{OWN}:{name}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_gradient", "no gradient flows from it to `logprobs`"),
        ("mean_loss", r"on a batch of shape \(4, 3\) it returned \(Tensor \[\], \{\}\)"),
        ("raising", "it failed on a small batch with TypeError"),
    ],
)
def test_a_loss_that_cannot_work_is_refused(name, message):
    with pytest.raises(ConfigError, match=rf"policy_loss={OWN}:{name}: {message}"):
        check_policy_loss(f"{OWN}:{name}")


def test_a_strategy_of_ones_own_chooses():
    settings = FilterSettings(strategy=f"{OWN}:keep_all", include_zero=False)
    check_strategy(settings.strategy, settings)
    assert select([0.0, 1.0, 2.0], settings) == [1, 2], "groups without variance are no candidates"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("keep_twice", r"of 3 groups it chose \[0, 0\]"),
        ("keep_names", r"it returned \['first'\]"),
        ("keep_wrongly", "it failed on a small batch with TypeError"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(name, message):
    with pytest.raises(ConfigError, match=rf"rollout_filter_strategy={OWN}:{name}: {message}"):
        check_strategy(f"{OWN}:{name}", FilterSettings())
