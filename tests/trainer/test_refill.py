"""Refilling a batch: which groups are played again, how often, and what is said when the bound ends it."""

from ragen.algorithms.rollout_filter import FilterResult
from ragen.config import load_config
from ragen.trainer.refill import Refills, missing_groups


def kept(*group_ids: int) -> FilterResult:
    ids = list(group_ids)
    return FilterResult(
        kept=[],
        kept_ids=ids,
        selected_ids=ids,
        group_ids=ids,
        group_scores=[],
        rewards=[],
        reward_stds=[],
        kept_ratio=1.0,
        metrics={},
    )


def refills(limit: int) -> tuple[Refills, list[str]]:
    said: list[str] = []
    changes = ["es_manager.train.env_groups=3", f"es_manager.train.refill={limit}"]
    return Refills(load_config("base", changes).es_manager.train, announce=said.append), said


def test_a_place_is_empty_until_one_of_its_groups_is_kept():
    assert missing_groups(kept(0, 4), 3) == [2]
    assert missing_groups(kept(), 3) == [0, 1, 2]
    assert missing_groups(kept(0, 1, 3, 5), 3) == []


def test_attempts_go_on_until_every_place_is_filled():
    part, said = refills(5)
    found = []
    for attempt, indices in part.of_step(kept(1)):
        found.append((attempt, indices))
        part.note(kept(1, 3) if attempt == 1 else kept(1, 3, 8))
    assert found == [(1, [0, 2]), (2, [2])]
    assert part.metrics() == {
        "train/rollout_attempts": 3.0,
        "rollout/refilled_groups": 3.0,
        "rollout/unfilled_groups": 0.0,
    }
    assert said == []


def test_the_bound_ends_it_and_it_is_said_once():
    part, said = refills(2)
    for _ in range(2):  # two steps
        assert [attempt for attempt, _ in part.of_step(kept(0))] == [1, 2]
        assert part.metrics()["rollout/unfilled_groups"] == 2.0
    assert len(said) == 1 and "es_manager.train.refill=2 ended with 2 of 3 groups missing" in said[0]


def test_without_the_key_nothing_is_played_again():
    part, said = refills(0)
    assert list(part.of_step(kept())) == [] and said == []
    assert part.metrics() == {"train/rollout_attempts": 1.0}
