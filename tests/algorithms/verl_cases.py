"""The same quantities by our functions and by verl's `core_algos`, on one batch with holes in its masks.

verl is not a dependency. `make test-oracle` installs it beside the project and runs the live comparison; the numbers
that verl 0.9.1 gives for FIXED are checked in as verl_numbers.py and compared by every test run. They were written by

    PYTHONPATH=.oracle python -m tests.algorithms.verl_cases > tests/algorithms/verl_numbers.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor

from ragen.algorithms import gae as gae_module
from ragen.algorithms import group_advantage
from ragen.algorithms.entropy import head_logprobs
from ragen.algorithms.kl import KlController, token_kl
from ragen.algorithms.losses import POLICY_LOSSES, PolicyInputs, importance_weights, value_loss
from ragen.algorithms.masked import LOSS_AGG_MODES, masked_mean, token_weights

CLIP = {"clip_low": 0.2, "clip_high": 0.28, "clip_c": 3.0}
KL_NAMES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k1+", "k3+")
VERL_LOSSES = {"ppo": "vanilla", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}


@dataclass(kw_only=True)
class Inputs:
    """A batch; everything [batch, seq] unless noted."""

    mask: Tensor
    rewards: Tensor
    values: Tensor
    logprobs: Tensor
    old: Tensor
    ref: Tensor
    advantages: Tensor
    returns: Tensor
    groups: Tensor  # [batch]
    logits: Tensor  # [batch, vocab]
    targets: Tensor  # [batch]


def make_inputs(mask: Tensor, groups: Tensor, draw: Callable[..., Tensor]) -> Inputs:
    """A batch whose numbers come from `draw(*shape)`."""
    batch, seq = mask.shape
    old = -draw(batch, seq).abs()
    return Inputs(
        mask=mask,
        rewards=draw(batch, seq) * mask,
        values=draw(batch, seq) * mask,
        logprobs=old + 0.5 * draw(batch, seq),
        old=old,
        ref=old + 0.5 * draw(batch, seq),
        advantages=draw(batch, seq),
        returns=draw(batch, seq),
        groups=groups,
        logits=3 * draw(batch, 7),
        targets=torch.arange(batch) % 7,
    )


def fixed_inputs() -> Inputs:
    """A small batch without random numbers: two groups of two and an episode alone."""
    count = 0

    def draw(*shape: int) -> Tensor:
        nonlocal count
        size = torch.Size(shape).numel()
        numbers = torch.arange(count, count + size, dtype=torch.float64)
        count += size
        return (2 * torch.sin(numbers * numbers)).reshape(shape).float()

    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 0], [0, 1, 0, 0]]).float()
    return make_inputs(mask, torch.tensor([0, 1, 0, 1, 2]), draw)


def random_inputs(seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(12, 23, generator=generator) < 0.6).float()
    mask[:, 5] = 1.0  # verl divides by the number of sequences without a check
    groups = torch.randint(0, 4, (12,), generator=generator)
    return make_inputs(mask, groups, lambda *shape: torch.randn(*shape, generator=generator))


Case = tuple[Callable[[Inputs], dict[str, Tensor]], Callable[[Any, Inputs], dict[str, Tensor]]]
CASES: dict[str, Case] = {}
"""Name -> ours(inputs), verl's(core_algos, inputs); both return named tensors."""


# --- advantages -----------------------------------------------------------------------------------------------------


def under_mask(pair: tuple[Tensor, Tensor], mask: Tensor) -> dict[str, Tensor]:
    return {"advantages": pair[0] * mask, "returns": pair[1] * mask}


def add_gae(gamma: float, lam: float) -> None:
    CASES[f"gae {gamma} {lam}"] = (
        lambda x: under_mask(gae_module.gae(x.rewards, x.values, x.mask, gamma=gamma, lam=lam), x.mask),
        lambda core, x: under_mask(core.compute_gae_advantage_return(x.rewards, x.values, x.mask, gamma, lam), x.mask),
    )


def add_grouped(name: str, theirs: str, **options: Any) -> None:
    CASES[" ".join([name, *(f"{key}={value}" for key, value in options.items())])] = (
        lambda x: under_mask(
            getattr(group_advantage, name)(
                x.rewards,
                x.mask,
                x.groups,
                torch.arange(len(x.groups)),
                **({"norm_by_std": options["norm_adv_by_std_in_grpo"]} if options else {}),
            ),
            x.mask,
        ),
        lambda core, x: under_mask(
            getattr(core, theirs)(x.rewards.clone(), x.mask, x.groups.numpy(), **options), x.mask
        ),
    )


for gamma, lam in ((1.0, 1.0), (0.97, 0.9)):
    add_gae(gamma, lam)
add_grouped("grpo", "compute_grpo_outcome_advantage", norm_adv_by_std_in_grpo=True)
add_grouped("grpo", "compute_grpo_outcome_advantage", norm_adv_by_std_in_grpo=False)
add_grouped("rloo", "compute_rloo_outcome_advantage")
add_grouped("reinforce_plus_plus_baseline", "compute_reinforce_plus_plus_baseline_outcome_advantage")
CASES["reinforce_plus_plus 0.9"] = (
    lambda x: under_mask(group_advantage.reinforce_plus_plus(x.rewards, x.mask, gamma=0.9), x.mask),
    lambda core, x: under_mask(
        core.compute_reinforce_plus_plus_outcome_advantage(x.rewards, x.mask, config=SimpleNamespace(gamma=0.9)),
        x.mask,
    ),
)


# --- losses, with gradients -----------------------------------------------------------------------------------------


def with_gradient(function: Callable[[Tensor], tuple[Tensor, dict[str, Any]]], start: Tensor) -> dict[str, Tensor]:
    """The value of a function of `start`, its gradient and its metrics."""
    variable = start.clone().requires_grad_()
    value, metrics = function(variable)
    (gradient,) = torch.autograd.grad(value.sum(), variable)
    named = {name: torch.as_tensor(metric, dtype=torch.float32).detach() for name, metric in metrics.items()}
    return {"value": value.detach(), "gradient": gradient, **named}


def policy_inputs(x: Inputs, logprobs: Tensor) -> PolicyInputs:
    return PolicyInputs(logprobs=logprobs, old_logprobs=x.old, advantages=x.advantages, mask=x.mask, **CLIP)


def add_policy_loss(name: str, mode: str) -> None:
    def ours(x: Inputs) -> dict[str, Tensor]:
        def loss(logprobs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            token_loss, metrics = POLICY_LOSSES[name](policy_inputs(x, logprobs))
            means = {f"actor/{key}": masked_mean(metric, x.mask) for key, metric in metrics.items()}
            return (token_loss * token_weights(x.mask, mode)).sum(), means

        return with_gradient(loss, x.logprobs)

    def theirs(core: Any, x: Inputs) -> dict[str, Tensor]:
        config = core.ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=CLIP["clip_low"],
            clip_ratio_high=CLIP["clip_high"],
            clip_ratio_c=CLIP["clip_c"],
        )
        function = core.get_policy_loss_fn(VERL_LOSSES[name])
        return with_gradient(
            lambda logprobs: function(x.old, logprobs, x.advantages, x.mask, loss_agg_mode=mode, config=config),
            x.logprobs,
        )

    CASES[f"{name} {mode}"] = (ours, theirs)


def add_value_loss(mode: str) -> None:
    def ours(x: Inputs) -> dict[str, Tensor]:
        def loss(values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            token_loss, metrics = value_loss(values, x.values, x.returns, cliprange=0.5)
            clipped = masked_mean(metrics["vf_clipfrac"], x.mask)
            return (token_loss * token_weights(x.mask, mode)).sum(), {"clipfrac": clipped}

        return with_gradient(loss, x.advantages)

    def theirs(core: Any, x: Inputs) -> dict[str, Tensor]:
        def loss(values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            total, clipped = core.compute_value_loss(values, x.returns, x.values, x.mask, 0.5, loss_agg_mode=mode)
            return total, {"clipfrac": clipped}

        return with_gradient(loss, x.advantages)

    CASES[f"value {mode}"] = (ours, theirs)


def add_kl(name: str) -> None:
    CASES[f"kl {name}"] = (
        lambda x: with_gradient(lambda logprobs: (token_kl(logprobs, x.ref, name), {}), x.logprobs),
        lambda core, x: with_gradient(lambda logprobs: (core.kl_penalty(logprobs, x.ref, name), {}), x.logprobs),
    )


for mode in LOSS_AGG_MODES:
    for loss_name in POLICY_LOSSES:
        if loss_name != "sapo" or mode == "seq-mean-token-mean":  # verl's averages in no other way
            add_policy_loss(loss_name, mode)
    add_value_loss(mode)
for kl_name in KL_NAMES:
    add_kl(kl_name)


def ours_weighted(x: Inputs) -> dict[str, Tensor]:
    weights = importance_weights(x.old, x.ref, cap=1.5)
    loss, _ = POLICY_LOSSES["ppo"](policy_inputs(x, x.logprobs))
    return {"value": (loss * weights * token_weights(x.mask, "token-mean")).sum()}


def theirs_weighted(core: Any, x: Inputs) -> dict[str, Tensor]:
    config = core.ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_low=0.2, clip_ratio_high=0.28
    )
    weights = torch.exp(torch.clamp(x.old - x.ref, -20, 20)).clamp(max=1.5)
    loss, _ = core.get_policy_loss_fn("vanilla")(
        x.old, x.logprobs, x.advantages, x.mask, config=config, rollout_is_weights=weights
    )
    return {"value": loss}


CASES["ppo with importance weights"] = (ours_weighted, theirs_weighted)


# --- entropy and the KL controller ----------------------------------------------------------------------------------


def in_chunks(logits: Tensor, targets: Tensor) -> list[Tensor]:
    """Log-probs and entropies."""
    found = head_logprobs(logits.flatten(0, -2), lambda states: states, targets.flatten(), chunk_size=2)
    return [numbers.view(targets.shape) for numbers in found]


CASES["entropy in chunks"] = (
    lambda x: with_gradient(lambda logits: (in_chunks(logits, x.targets)[1], {}), x.logits),
    lambda core, x: with_gradient(
        lambda logits: (core.verl_F.entropy_from_logits_with_chunking(logits, 2), {}), x.logits
    ),
)
CASES["logprobs"] = (
    lambda x: with_gradient(lambda logits: (in_chunks(logits, x.targets)[0], {}), x.logits),
    lambda core, x: with_gradient(
        lambda logits: (core.verl_F.logprobs_from_logits_v2(logits, x.targets), {}), x.logits
    ),
)


def steer(controller: Any) -> dict[str, Tensor]:
    values = []
    for kl in (0.3, 0.05, 0.11):
        controller.update(kl, 128)
        values.append(controller.value)
    return {"values": torch.tensor(values, dtype=torch.float32)}


CASES["adaptive KL"] = (
    lambda x: steer(KlController(value=0.001, target=0.1, horizon=10000, is_adaptive=True)),
    lambda core, x: steer(core.AdaptiveKLController(0.001, 0.1, 10000)),
)


# --- verl -----------------------------------------------------------------------------------------------------------


def load_core_algos() -> ModuleType | None:
    """verl's `core_algos`, or None when verl is not installed.

    Its other modules import packages that these functions never call (ray, tensordict, ...); where they are missing,
    empty stand-ins take their place.
    """
    stand_ins: list[str] = []
    try:
        while True:
            try:
                from verl.trainer.ppo import core_algos

                return core_algos
            except ModuleNotFoundError as error:
                if not error.name or error.name.split(".")[0] == "verl" or error.name in stand_ins:
                    return None
                for name in [name for name in sys.modules if name.split(".")[0] == "verl"]:
                    del sys.modules[name]
                stand_in = MagicMock()
                stand_in.__spec__, stand_in.__path__ = ModuleSpec(error.name, None), []
                sys.modules[error.name] = stand_in
                stand_ins.append(error.name)
    finally:
        for name in stand_ins:
            del sys.modules[name]


def main() -> None:
    core = load_core_algos()
    assert core is not None, "verl is missing: pip install --no-deps --target .oracle verl==0.9.1"
    inputs = fixed_inputs()
    print('"""What verl 0.9.1 computes for `fixed_inputs`; written by tests/algorithms/verl_cases.py."""\n')
    print("# fmt: off\nNUMBERS: dict[str, dict[str, list[float]]] = {")
    for name, (_, theirs) in CASES.items():
        print(f'    "{name}": {{')
        for key, tensor in theirs(core, inputs).items():
            numbers = ", ".join(f"{value + 0.0:.6g}" for value in tensor.flatten().tolist())
            line = f'        "{key}": [{numbers}],'
            print(textwrap.fill(line, 120, subsequent_indent=" " * 12, break_long_words=False))
        print("    },")
    print("}")


if __name__ == "__main__":
    main()
