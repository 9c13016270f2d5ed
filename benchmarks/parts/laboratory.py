"""Estimates of a policy's gradient, by the trainer's own scoring, beside the exact one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import combinations_with_replacement
from operator import getitem
from typing import Any

import torch
from parts.decisions import Policy, Process, Trajectory, exact_gradient, to_episode, trajectories
from parts.tabular import TabularWorkers, Values
from torch import Tensor

from ragen.algorithms.masked import token_weights
from ragen.algorithms.statistics import Z
from ragen.config.load import build_config, compose
from ragen.config.schema import Config
from ragen.learners.batch import Batch
from ragen.trainer.scoring import Scorer
from ragen.types import Group

BETA = 0.3
"""Weight of the KL in the reward, where there is one."""
NUM_GROUPS, GROUP_SIZE = 4, 8
"""Of a drawn batch."""
EPISODES_A_CALL = 512
"""An estimator that compares the members of a group only is given the groups of several batches at once."""

NUM_DRAWS = 5000
"""From which the radius of a band is read."""

UNBIASED, UP_TO_A_FACTOR = "unbiased", "up to a factor"


@dataclass(frozen=True, kw_only=True, eq=False)
class Arm:
    """An estimator with its settings, and what is claimed of it."""

    settings: dict[str, Any]
    """Keys of the configuration."""
    claim: str = UNBIASED
    """What its mean is where it is not biased."""
    biased_in: tuple[str, ...] = ()
    """The processes in which its mean points elsewhere."""
    is_raw: bool = False
    """The advantages before they are whitened."""
    has_critic: bool = True
    """The critic knows the exact values; else it says 0."""
    is_per_batch: bool = False
    """It compares all episodes of a batch, not only those of a group."""
    is_weighed: bool = False
    """Tokens have the weights of actor.loss_agg_mode; else the sum over all of them is divided by the episodes."""

    @property
    def has_kl(self) -> bool:
        """The objective is the expected reward less BETA times the KL to the reference."""
        return "algorithm.use_kl_in_reward" in self.settings


def configure(settings: Mapping[str, Any]) -> Config:
    """The base configuration with other values of some keys, checked as a run's is."""
    return _configured(tuple(sorted(settings.items())))


@cache
def _configured(settings: tuple[tuple[str, Any], ...]) -> Config:
    tree = deepcopy(_base())
    for key, value in settings:
        *path, name = key.split(".")
        reduce(getitem, path, tree)[name] = value
    return build_config(tree)


@cache
def _base() -> dict[str, Any]:
    return compose("base", ["system.CUDA_VISIBLE_DEVICES=''"])


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The mean of an estimator beside the exact gradient."""

    exact: Tensor  # [choices]
    mean: Tensor  # [choices]
    covariance: Tensor  # [choices, choices]
    """Of one batch."""
    num_batches: int | None = None
    """None: the mean is exact."""

    @classmethod
    def of(cls, batches: Tensor, exact: Tensor, weights: Tensor | None = None) -> Measured:
        """From the estimates of single batches, [batches, choices], with probabilities or drawn."""
        if weights is None:
            return cls(exact=exact, mean=batches.mean(0), covariance=batches.T.cov(), num_batches=len(batches))
        mean = weights @ batches
        return cls(exact=exact, mean=mean, covariance=(batches - mean).T @ (weights.unsqueeze(1) * (batches - mean)))

    @property
    def factor(self) -> float:
        return (self.mean @ self.exact / self.exact.square().sum()).item()

    @property
    def angle(self) -> float:
        along = self.factor * self.exact
        across = (self.mean - along).norm()
        return math.degrees(math.atan2(across.item(), math.copysign(along.norm().item(), self.factor)))

    @property
    def noise(self) -> float:
        return (self.covariance.trace().sqrt() / self.mean.norm()).item()

    @property
    def factor_margin(self) -> float:
        """From the factor to the ends of its 95 % interval."""
        assert self.num_batches is not None
        variance = self.exact @ self.covariance @ self.exact / self.exact.square().sum() ** 2
        return Z * math.sqrt(variance.item() / self.num_batches)

    def radius(self, confidence: float = 0.95) -> float:
        """So far the mean of the batches is from the true one, at most, by the central limit theorem."""
        assert self.num_batches is not None
        variances = torch.linalg.eigvalsh(self.covariance / self.num_batches).clamp(min=0)
        draws = torch.randn(NUM_DRAWS, len(variances), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return (draws.square() @ variances).quantile(confidence).sqrt().item()

    def angle_band(self, confidence: float = 0.95) -> tuple[float, float]:
        """What the angle of the true mean can be."""
        share = self.radius(confidence) / self.mean.norm().item()
        if share >= 1:
            return 0.0, 180.0
        margin = math.degrees(math.asin(share))
        return max(0.0, self.angle - margin), min(180.0, self.angle + margin)

    def is_in_band(self, confidence: float = 0.95) -> bool:
        """The exact gradient is among what the true mean can be."""
        return (self.mean - self.exact).norm().item() <= self.radius(confidence)


@dataclass(kw_only=True, eq=False)
class Laboratory:
    """A process with all its episodes, a policy, a reference, and estimates of the policy's gradient."""

    policy: Policy
    reference: Policy

    @classmethod
    def of(cls, process: Process) -> Laboratory:
        return cls(policy=Policy(process, seed=1), reference=Policy(process, seed=2))

    @cached_property
    def trajectories(self) -> list[Trajectory]:
        return trajectories(self.policy.process)

    @cached_property
    def probabilities(self) -> list[float]:
        return self.policy.probabilities(self.trajectories).tolist()

    def group(self, members: Sequence[int], group_id: int) -> Group:
        """A group of the trajectories with these numbers."""
        episodes = [
            to_episode(self.trajectories[number], self.policy, group_id=group_id, member=member)
            for member, number in enumerate(members)
        ]
        return Group(group_id=group_id, episodes=episodes)

    def by_level(self) -> Iterator[list[int]]:
        for level in range(len(self.policy.process.levels)):
            yield [number for number, each in enumerate(self.trajectories) if each.level == level]

    @cached_property
    def all_pairs(self) -> tuple[list[list[Group]], Tensor]:
        """Every group of two episodes, a batch of its own, and their probabilities."""
        num_levels = len(self.policy.process.levels)
        pairs = [pair for numbers in self.by_level() for pair in combinations_with_replacement(numbers, 2)]
        weights = [
            num_levels * math.factorial(2) / math.prod(map(math.factorial, Counter(pair).values()))
            * math.prod(self.probabilities[number] for number in pair)
            for pair in pairs
        ]  # fmt: skip
        return [[self.group(pair, i)] for i, pair in enumerate(pairs)], torch.tensor(weights, dtype=torch.float64)

    @cache  # noqa: B019 (a laboratory lives as long as its batches are wanted)
    def drawn(
        self, num_batches: int, *, seed: int, num_groups: int = NUM_GROUPS, group_size: int = GROUP_SIZE
    ) -> list[list[Group]]:
        """Batches of groups, each on a level drawn for it."""
        generator = torch.Generator().manual_seed(seed)
        levels, probabilities = list(self.by_level()), torch.tensor(self.probabilities)

        def group(group_id: int) -> Group:
            numbers = levels[int(torch.randint(len(levels), (), generator=generator))]
            drawn = torch.multinomial(probabilities[numbers], group_size, replacement=True, generator=generator)
            return self.group([numbers[index] for index in drawn.tolist()], group_id)

        return [[group(batch * num_groups + i) for i in range(num_groups)] for batch in range(num_batches)]

    def estimates(
        self, arm: Arm, batches: Sequence[Sequence[Group]], *, values: Values | None = None
    ) -> Tensor:  # [batches, choices]
        """What each batch makes of the gradient, with the arm's critic or another one."""
        workers = TabularWorkers(self.policy, self.reference, self.values(arm) if values is None else values)
        config, scores = configure(arm.settings), self.policy.scores().float()
        num_episodes = sum(len(group.episodes) for group in batches[0])
        found = torch.zeros(len(batches), len(scores))
        batches_a_call = 1 if arm.is_per_batch else max(1, EPISODES_A_CALL // num_episodes)
        for start in range(0, len(batches), batches_a_call):
            part = dict(enumerate(batches[start : start + batches_a_call], start))
            batch = score([group for groups in part.values() for group in groups], config, workers)
            batch_of = {group.group_id: index for index, groups in part.items() for group in groups}
            weights = batch.mask / num_episodes
            if arm.is_weighed:
                weights = token_weights(batch.mask, config.actor_rollout_ref.actor.loss_agg_mode)
            tokens = advantages_of(batch, is_raw=arm.is_raw) * weights  # [batch, seq]
            per_row = torch.einsum("bs,bsc->bc", tokens, scores[workers.choices(batch).clamp(min=0)])
            found.index_add_(0, torch.tensor([batch_of[group_id] for group_id in batch.groups.tolist()]), per_row)
        return found.double()

    @cache  # noqa: B019
    def measure(self, arm: Arm, *, num_batches: int = 0, seed: int = 0) -> Measured:
        """Exact, from all groups of two episodes; or from drawn batches."""
        exact = exact_gradient(self.policy, reference=self.reference if arm.has_kl else None, beta=BETA)
        if num_batches:
            return Measured.of(self.estimates(arm, self.drawn(num_batches, seed=seed)), exact)
        pairs, weights = self.all_pairs
        return Measured.of(self.estimates(arm, pairs), exact, weights)

    def values(self, arm: Arm) -> Values:
        """What a critic without error would say: the mean of the returns (λ = 1) behind each beginning of a row."""
        config = configure(arm.settings | {"algorithm.lam": 1.0})
        if not config.uses_critic or not arm.has_critic:
            return {}
        workers = TabularWorkers(self.policy, self.reference, {})
        batch = score([self.group([number], number) for number in range(len(self.trajectories))], config, workers)
        assert batch.returns is not None
        rows = zip(batch.ids, batch.returns.tolist(), batch.mask.tolist(), batch.groups.tolist())
        sums: dict[tuple[int, ...], float] = {}
        masses: dict[tuple[int, ...], float] = {}
        for ids, returns, mask, number in rows:
            for t in (t for t in range(len(ids)) if mask[t]):
                before = tuple(ids[:t])
                sums[before] = sums.get(before, 0.0) + self.probabilities[number] * returns[t]
                masses[before] = masses.get(before, 0.0) + self.probabilities[number]
        return {before: total / masses[before] for before, total in sums.items()}


def score(groups: Sequence[Group], config: Config, workers: TabularWorkers) -> Batch:
    """A scored batch, as the trainer makes it."""
    scorer = Scorer(config, workers, timer=lambda stage: nullcontext(), train_seed=0)  # type: ignore[arg-type]
    return scorer(groups, kept_ratio=1.0, measured_seed=0)[0]


def advantages_of(batch: Batch, *, is_raw: bool) -> Tensor:  # [batch, seq]
    """As they enter the loss, or before they were whitened: returns are raw advantages and values."""
    assert batch.advantages is not None and batch.returns is not None
    if not is_raw:
        return batch.advantages
    return batch.returns if batch.values is None else batch.returns - batch.values
