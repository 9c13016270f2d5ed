"""Which levels training plays: fresh ones, a pool in turn, or those of a pool that are solved half of the time.

Levels are seeds. Every choice is keyed by the training seed, and what it rests on is in the checkpoints: the same
command plays the same levels, killed in between or not. Which seeds a run may play is said in ragen/config/seeds.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any

from ragen.config.schema import TrainSetConfig
from ragen.config.seeds import fresh_seed, pool_seed, renewal_seed
from ragen.llm_agent.es_manager import GroupLevel
from ragen.seeding import Rng
from ragen.tracking import names
from ragen.types import Episode, Group, Metrics, group_episodes

Choice = list[GroupLevel | None]
"""[groups] The level of each group; None: the group is not played."""


class FreshLevels:
    """Every group of every step has a level that was not played before."""

    def __init__(self, train: TrainSetConfig, seed: int) -> None:
        self.train, self.seed = train, seed

    def choose(self, step: int, attempt: int, groups: Sequence[int]) -> Choice:
        """Levels for some groups; attempts above 0 refill the batch of the step."""
        first = fresh_seed(self.train, self.seed, step, attempt)
        return [GroupLevel(seed=first + group) if group in groups else None for group in range(self.train.env_groups)]

    def record(self, episodes: Sequence[Episode]) -> None:
        """Nothing is remembered."""

    def metrics(self) -> Metrics:
        return {}

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.train.levels}

    def load(self, state: Mapping[str, Any]) -> None:
        """Fresh levels follow from the step alone."""


@dataclass(slots=True)
class KeptLevel:
    """A level of a pool, and what came of it."""

    seed: int
    visits: int = 0
    """How often it was drawn."""
    num_solved: float = 0.0
    """Episodes that solved it; those of each visit weigh `decay` times those of the next."""
    num_played: float = 0.0
    """All episodes, weighed alike."""
    streak: int = 0
    """Visits in a row, up to the last, that solved it every time; below 0: that never did."""

    @property
    def pass_rate(self) -> float | None:
        """Recent success; None before the first visit."""
        return self.num_solved / self.num_played if self.num_played else None

    @property
    def weight(self) -> float:
        """p (1 - p) with half a success and half a failure added: a level that was not played counts as one half.

        5 of 8 solved: p = 5.5 / 9, weight 0.24. None of 8: p = 0.5 / 9, weight 0.05. Not played: 0.25.
        """
        rate = (self.num_solved + 0.5) / (self.num_played + 1.0)
        return rate * (1.0 - rate)

    def add(self, group: Group, decay: float) -> None:
        """Take in the episodes of a visit; those that a fault ended say nothing about the level."""
        outcomes = [episode.is_success for episode in group.episodes if not episode.status.is_fault]
        if not outcomes:
            return
        self.num_solved = decay * self.num_solved + sum(outcomes)
        self.num_played = decay * self.num_played + len(outcomes)
        if all(outcomes):
            self.streak = max(0, self.streak) + 1
        else:
            self.streak = 0 if any(outcomes) else min(0, self.streak) - 1


class PoolLevels:
    """A fixed number of levels for each tag, played in turn: each once in a round, each round in its own order."""

    def __init__(self, train: TrainSetConfig, seed: int) -> None:
        self.train, self.seed, self.settings = train, seed, train.level_pool
        self.pools: dict[str, list[KeptLevel]] = {}
        for tag in dict.fromkeys(train.env_configs.tags):
            first = pool_seed(train, seed, tag)
            self.pools[tag] = [KeptLevel(first + number) for number in range(self.settings.size)]

    def choose(self, step: int, attempt: int, groups: Sequence[int]) -> Choice:
        """Levels for some groups, each from the pool of its tag."""
        choice: Choice = [None] * self.train.env_groups
        for tag, pool in self.pools.items():
            own = [group for group in groups if self.train.group_tags[group] == tag]
            drawn = self.draw(tag, pool, len(own), step, attempt)
            for group, level in zip(own, drawn, strict=True):
                choice[group] = GroupLevel(seed=level.seed, visit=level.visits)
                level.visits += 1
        return choice

    def draw(self, tag: str, pool: Sequence[KeptLevel], count: int, step: int, attempt: int) -> list[KeptLevel]:
        """The next ones in turn."""
        num_drawn, drawn = sum(level.visits for level in pool), []
        while len(drawn) < count:
            number, start = divmod(num_drawn + len(drawn), len(pool))
            order = Rng(self.seed, "pool", tag, number).sample(pool, len(pool))
            drawn += order[start : start + count - len(drawn)]
        return drawn

    def record(self, episodes: Sequence[Episode]) -> None:
        """Take in what came of a rollout."""
        kept = {(tag, level.seed): level for tag, pool in self.pools.items() for level in pool}
        for group in group_episodes(episodes):
            first = group.episodes[0]
            kept[first.tag, first.seed].add(group, self.settings.decay)

    def metrics(self) -> Metrics:
        """`<tag>/pool_levels`, of them `pool_visited`, their mean `pool_pass_rate`, and the histogram `pool_<bin>`."""
        metrics: Metrics = {}
        for tag, pool in self.pools.items():
            rates = [level.pass_rate for level in pool if level.pass_rate is not None]
            found = {"pool_levels": float(len(pool)), "pool_visited": float(len(rates))}
            if rates:
                found["pool_pass_rate"] = fmean(rates)
            metrics |= names.with_prefix(tag, found | histogram("pool", rates))
        return metrics

    def to_json(self) -> dict[str, Any]:
        pools = {tag: [list(astuple(level)) for level in pool] for tag, pool in self.pools.items()}
        return {"kind": self.train.levels, "seed": self.seed, "pools": pools}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue the pools of a checkpoint; where settings were changed and it has others, these begin anew."""
        mine, theirs = self.to_json(), {"seed": None, "pools": {}, **state}
        for facts in (mine, theirs):
            facts["pools"] = {tag: len(rows) for tag, rows in facts["pools"].items()}
        differing = [
            f"{key} {theirs[key]} -> {mine[key]}" for key in ("kind", "seed", "pools") if mine[key] != theirs[key]
        ]
        if differing:
            print(f"The pools of levels begin anew: {', '.join(differing)}.", flush=True)
        else:
            self.load_pools(state)

    def load_pools(self, state: Mapping[str, Any]) -> None:
        self.pools = {tag: [KeptLevel(*row) for row in rows] for tag, rows in state["pools"].items()}


class PassRateLevels(PoolLevels):
    """A pool whose levels are drawn most if they are solved half of the time; levels that teach nothing are replaced.

    With binary rewards the spread within a group is largest there: its variance is p (1 - p).
    """

    def __init__(self, train: TrainSetConfig, seed: int) -> None:
        super().__init__(train, seed)
        self.next_seed = renewal_seed(train, seed)
        self.counts: Counter[tuple[str, str]] = Counter()
        """Of this step, by tag: levels that were `drawn`, of those from all alike (`uniform`), and `renewed` ones."""

    def choose(self, step: int, attempt: int, groups: Sequence[int]) -> Choice:
        if attempt == 0:
            self.counts.clear()
        return super().choose(step, attempt, groups)

    def draw(self, tag: str, pool: Sequence[KeptLevel], count: int, step: int, attempt: int) -> list[KeptLevel]:
        """Different levels by their weight, a share of them from all alike."""
        rng, left, drawn = Rng(self.seed, "pass rate", tag, step, attempt), list(pool), []
        for _ in range(count):
            if rng.random() < self.settings.uniform_share:
                index = rng.below(len(left))
                self.counts[tag, "uniform"] += 1
            else:
                index = weighted_index([level.weight for level in left], rng)
            drawn.append(left.pop(index))
        self.counts[tag, "drawn"] += count
        return drawn

    def record(self, episodes: Sequence[Episode]) -> None:
        super().record(episodes)
        limit = self.settings.renew_after
        for tag, pool in self.pools.items():
            for index, level in enumerate(pool):
                if 0 < limit <= abs(level.streak):
                    pool[index] = KeptLevel(self.next_seed)
                    self.next_seed += 1
                    self.counts[tag, "renewed"] += 1

    def metrics(self) -> Metrics:
        """What a pool logs, and `<tag>/renewed` and `<tag>/uniform_share` of the step."""
        metrics = super().metrics()
        for tag in self.pools:
            metrics[f"{tag}/renewed"] = float(self.counts[tag, "renewed"])
            if count := self.counts[tag, "drawn"]:
                metrics[f"{tag}/uniform_share"] = self.counts[tag, "uniform"] / count
        return metrics

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"next_seed": self.next_seed}

    def load_pools(self, state: Mapping[str, Any]) -> None:
        super().load_pools(state)
        self.next_seed = state["next_seed"]


LEVELS: dict[str, Callable[[TrainSetConfig, int], FreshLevels | PoolLevels]] = {
    "fresh": FreshLevels,
    "pool": PoolLevels,
    "pass_rate": PassRateLevels,
}
"""es_manager.train.levels -> what chooses them."""


def weighted_index(weights: Sequence[float], rng: Rng) -> int:
    """An index, each with a probability in proportion to its weight."""
    point = rng.random() * sum(weights)
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return index
    return len(weights) - 1  # rounding


# --- how much of a level is solved ----------------------------------------------------------------------------------


def bin_of(rate: float) -> str:
    """none 0, few below 1/3, some up to 2/3, most below 1, all 1"""
    if rate in (0.0, 1.0):
        return names.PASS_RATE_BINS[-1 if rate else 0]
    return names.PASS_RATE_BINS[1 + (rate >= 1 / 3) + (rate > 2 / 3)]


def histogram(prefix: str, rates: Sequence[float]) -> Metrics:
    """The share of pass rates in each bin; nothing without any."""
    bins = [bin_of(rate) for rate in rates]
    return {f"{prefix}_{name}": bins.count(name) / len(bins) for name in names.PASS_RATE_BINS} if bins else {}


def played_metrics(groups: Sequence[Group]) -> Metrics:
    """`<tag>/played_<bin>`: the share of a rollout's groups that solved their level never, seldom, ..., always."""
    rates: dict[str, list[float]] = {}
    for group in groups:
        rates.setdefault(group.episodes[0].tag, []).append(fmean(episode.is_success for episode in group.episodes))
    found = (names.with_prefix(tag, histogram("played", values)) for tag, values in rates.items())
    return {name: value for metrics in found for name, value in metrics.items()}
