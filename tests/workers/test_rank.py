"""The workers of a rank: which levels it plays."""

from ragen.llm_agent.es_manager import GroupLevel, levels_from
from ragen.workers.rank import part_of_environments
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
