"""The workers of a rank: which levels it plays, and what it does without any."""

from types import SimpleNamespace

import torch

from ragen.engine.base import Engine, Total
from ragen.llm_agent.es_manager import GroupLevel, levels_from
from ragen.modeling.team import SOLO
from ragen.workers.rank import RankWorkers, part_of_environments
from tests.trainer.runs import small_config


def test_groups_keep_their_numbers_and_tags_on_every_rank(tmp_path):
    groups = [(0, "Bandit"), (3, "Bandit"), (5, "FrozenLake")]
    environments = part_of_environments(small_config(tmp_path), groups, 2)
    assert [(seat.group_id, seat.tag, seat.member) for seat in environments.seats] == [
        (number, tag, member) for number, tag in groups for member in range(2)
    ]
    assert [seat.seed for seat in environments.reset(levels_from(100, 6))] == [100, 100, 103, 103, 105, 105]
    refilled = environments.reset([None] * 5 + [GroupLevel(seed=7, visit=1)])
    assert [(seat.group_id, seat.member, seat.seed) for seat in refilled] == [(5, 2, 7), (5, 3, 7)]
    assert environments.reset([GroupLevel(seed=7), *[None] * 5])[0].member == 0
    assert environments.reset([None, GroupLevel(seed=7), *[None] * 4]) == [], "another rank plays it"
    environments.close()


class CountingEngine(Engine):
    """Counts the rollouts of each end, and is another process's follower or not."""

    def __init__(self, *, is_follower: bool = False) -> None:
        self.is_follower, self.num_played, self.num_last = is_follower, 0, 0

    def end_rollout(self) -> None:
        self.num_played, self.num_last = 0, self.num_played

    def follow(self) -> bool:
        return self.is_follower

    def metrics(self, total: Total = dict):
        return total({"rollout/played": self.num_last})


def workers_with(engine: Engine, config) -> RankWorkers:
    def rollout(environments, plan, on_episode):
        engine.num_played += 1
        return ["an episode"]

    actor = SimpleNamespace(device=torch.device("cpu"), team=SOLO, model=None, update=lambda batch, step: {"loss": 0.0})
    agent = SimpleNamespace(engine=engine, rollout=rollout)
    parts = {"actor": actor, "critic": None, "reference": None, "tokenizer": None}
    return RankWorkers(config, agent, rank=SimpleNamespace(number=0, on_progress=lambda: None), **parts)


def test_a_rank_without_groups_logs_no_counts_of_an_earlier_rollout(tmp_path):
    workers = workers_with(CountingEngine(), small_config(tmp_path))
    assert workers.play([(0, "Bandit")], 1, None) == ["an episode"]
    assert workers.update_actor(None, step=1) == {"loss": 0.0, "rollout/played": 1}
    assert workers.play([], 1, None) == []
    assert workers.update_actor(None, step=2) == {"loss": 0.0, "rollout/played": 0}
    workers._environments.popitem()[1].close()


def test_what_engines_count_is_summed_over_the_ranks(tmp_path):
    workers = workers_with(CountingEngine(), small_config(tmp_path))
    workers.actor.team = SimpleNamespace(full_model=lambda model: model, sum=lambda counts: dict.fromkeys(counts, 7.0))
    assert workers.update_actor(None, step=1)["rollout/played"] == 7.0


def test_a_rank_that_follows_another_plays_nothing_itself(tmp_path):
    workers = workers_with(engine := CountingEngine(is_follower=True), small_config(tmp_path))
    assert workers.play([(0, "Bandit")], 1, None) == workers.play([], 1, None) == []
    assert engine.num_played == 0
