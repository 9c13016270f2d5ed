"""Estimators, losses and filter strategies of one's own, tried on a tiny batch before a run begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from ragen.algorithms.advantage import ESTIMATORS, AdvantageInputs, compute_advantages, estimator
from ragen.algorithms.filter_strategies import KEY as STRATEGY_KEY
from ragen.algorithms.filter_strategies import FilterSettings, checked_indices, strategy
from ragen.algorithms.losses import KEY as LOSS_KEY
from ragen.algorithms.losses import PolicyInputs, policy_loss
from ragen.config.estimators import KEY as ESTIMATOR_KEY
from ragen.config.estimators import Need, declaration
from ragen.config.extensions import refuse
from ragen.config.strict import did_you_mean
from ragen.errors import ConfigError

OF_NEED: dict[str, Need] = {"values": "values", "turn_ids": "turns", "anchors": "turns", "step_returns": "turns"}
"""Field of AdvantageInputs -> the need that has it computed."""

MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])  # [batch, seq]
"""Two groups of two episodes, of different lengths."""


def check_estimator(name: str) -> None:
    """Refuse an estimator that asks for what there is not, does not declare what it needs, or returns other shapes."""
    function, needs = estimator(name), declaration(name).needs
    refused = partial(refuse, "estimators", name, ESTIMATOR_KEY)
    fields = AdvantageInputs.__dataclass_fields__
    for parameter in signature(function).parameters.values():
        if parameter.name not in fields and parameter.default is Parameter.empty and parameter.kind not in VARIADIC:
            hint = did_you_mean(parameter.name, fields)
            raise refused(f"its parameter {parameter.name} is no field of AdvantageInputs ({', '.join(fields)}).{hint}")
        need = OF_NEED.get(parameter.name)
        if need is not None and need not in needs:
            raise refused(f"it reads {parameter.name} and does not say so. Write @ragen.needs({need!r}) above it.")
    inputs = AdvantageInputs(
        token_rewards=torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]),
        mask=MASK,
        groups=torch.tensor([0, 0, 1, 1]),
        episodes=torch.tensor([0, 1, 0, 1]),
        entropies=torch.full_like(MASK, 0.5),
        values=torch.zeros_like(MASK) if "values" in needs else None,
        turn_ends=torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        turn_ids=torch.where(MASK > 0, 0, -1) if "turns" in needs else None,
        anchors=torch.zeros(4, 1, dtype=torch.long) if "turns" in needs else None,
        step_returns=torch.tensor([[1.0], [0.5], [0.0], [2.0]]) if "turns" in needs else None,
    )
    checked_estimates(name, _tried(refused, lambda: compute_advantages(name, inputs)), MASK)


def checked_estimates(name: str, found: Any, mask: Tensor) -> tuple[Tensor, Tensor]:
    """What an estimator returned; one of one's own may do so only on some batches (a group of equal rewards)."""
    is_pair = isinstance(found, tuple) and len(found) == 2
    if name not in ESTIMATORS and not (is_pair and all(_is_per_token(each, mask) for each in found)):
        problem = f"on a batch of shape {tuple(mask.shape)} it returned {_shapes(found)}."
        raise refuse("estimators", name, ESTIMATOR_KEY, problem)
    return found


def check_policy_loss(name: str) -> None:
    """Refuse a loss that is not one number per token, or through which no gradient flows."""
    logprobs = torch.full_like(MASK, -1.0, requires_grad=True)
    inputs = PolicyInputs(
        logprobs=logprobs,
        old_logprobs=torch.full_like(MASK, -1.1),
        advantages=torch.tensor([[1.0], [-1.0], [0.5], [-0.5]]) * MASK,
        mask=MASK,
        clip_low=0.2,
        clip_high=0.28,
        clip_c=3.0,
    )
    refused = partial(refuse, "losses", name, LOSS_KEY)
    found = _tried(refused, lambda: policy_loss(name)(inputs))
    is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)
    if not (is_pair and all(map(_is_per_token, (found[0], *found[1].values())))):
        raise refused(f"on a batch of shape (4, 3) it returned {_shapes(found)}.")
    if not found[0].requires_grad:
        raise refused("no gradient flows from it to `logprobs`.")


def check_strategy(name: str, settings: FilterSettings) -> None:
    """Refuse a strategy that cannot be called, or that chooses no groups of those there are."""
    refused = partial(refuse, "filters", name, STRATEGY_KEY)
    chosen = _tried(refused, lambda: strategy(name)([0.5, 1.0, 2.0], settings, num_groups=3))
    checked_indices(chosen, 3, name)


VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _tried(refused: Callable[[str], ConfigError], call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise refused(f"it failed on a small batch with {type(error).__name__}: {error}.") from error


def _is_per_token(found: Any, mask: Tensor = MASK) -> bool:
    return isinstance(found, Tensor) and found.shape == mask.shape and bool(torch.isfinite(found * mask).all())


def _shapes(found: Any) -> str:
    """(Tensor [4], Tensor [4, 3])"""
    if isinstance(found, Tensor):
        return f"Tensor {list(found.shape)}" + (
            "" if torch.isfinite(found).all() else " with numbers that are not finite"
        )
    if isinstance(found, tuple | list):
        return f"({', '.join(map(_shapes, found))})"
    if isinstance(found, dict):
        return f"{{{', '.join(f'{key}: {_shapes(value)}' for key, value in found.items())}}}"
    return type(found).__name__
