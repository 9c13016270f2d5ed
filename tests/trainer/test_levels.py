"""Which levels training plays: rounds of a pool, pass rates near one half, and what a checkpoint continues."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from ragen.config import load_config
from ragen.config.schema import TrainSetConfig
from ragen.config.seeds import training_levels
from ragen.trainer.levels import LEVELS, FreshLevels, KeptLevel, PassRateLevels, PoolLevels, histogram, played_metrics
from ragen.types import Episode, Group, Status, group_episodes
from tests.trainer.runs import LAKE, refused, small_config, train

TWO_TAGS = (
    "es_manager.train.env_configs.tags=[FrozenLake,CoordFrozenLake]",
    "es_manager.train.env_configs.n_groups=[2,2]",
    "es_manager.train.env_groups=4",
)


@cache
def two_tags() -> TrainSetConfig:
    return load_config("base", [*TWO_TAGS, "es_manager.val.env_configs.n_groups=[256,256]"]).es_manager.train


def train_set(levels: str = "fresh", *, refill: int = 0, **pool) -> TrainSetConfig:
    """Two tags with two groups each; `pool` are keys of level_pool."""
    base = two_tags()
    return replace(base, levels=levels, refill=refill, level_pool=replace(base.level_pool, **pool))


def played(tag: str, seed: int, *outcomes: bool, group_id: int = 0, fault: bool = False) -> list[Episode]:
    """The episodes of a group: solved or not."""
    statuses = [Status.ENV_ERROR if fault else Status.SOLVED if solved else Status.FAILED for solved in outcomes]
    return [
        Episode(tag=tag, env_type="lake", group_id=group_id, member=member, seed=seed, status=status)
        for member, status in enumerate(statuses)
    ]


def seeds(levels, step: int, attempt: int = 0, groups=range(4)) -> list[int | None]:
    return [level and level.seed for level in levels.choose(step, attempt, groups)]


def test_fresh_levels_follow_each_other_through_the_groups_and_steps():
    levels = FreshLevels(train_set(), 100)
    assert [seeds(levels, step) for step in (1, 2, 3)] == [
        [100, 101, 102, 103],
        [104, 105, 106, 107],
        [108, 109, 110, 111],
    ]
    assert all(level is not None and level.visit == 0 for level in levels.choose(1, 0, range(4)))


def test_with_refills_every_attempt_of_every_step_has_fresh_levels_of_its_own():
    levels = FreshLevels(train_set(refill=1), 100)
    assert [seeds(levels, 1), seeds(levels, 1, 1, [1, 3]), seeds(levels, 2)] == [
        [100, 101, 102, 103],
        [None, 105, None, 107],
        [108, 109, 110, 111],
    ]


def test_a_pool_plays_each_level_once_a_round_in_an_order_of_the_round():
    levels = PoolLevels(train_set("pool", size=6), 100)
    steps = [levels.choose(step, 0, range(4)) for step in range(1, 7)]
    drawn = {tag: [step[group] for step in steps for group in groups] for tag, groups in {0: (0, 1), 1: (2, 3)}.items()}
    rounds = [[level.seed for level in each[start : start + 6]] for each in drawn.values() for start in (0, 6)]
    assert [sorted(each) for each in rounds] == [[*range(100, 106)]] * 2 + [[*range(106, 112)]] * 2
    assert rounds[0] != rounds[1], "another order"
    assert [level.visit for level in drawn[0]] == [0] * 6 + [1] * 6, "chance is another at each visit"


def test_a_round_may_end_in_the_middle_of_a_rollout():
    levels = PoolLevels(train_set("pool", size=3), 100)
    first = [level.seed for step in (1, 2, 3) for level in levels.choose(step, 0, (0, 1))[:2]]
    assert sorted(first[:3]) == sorted(first[3:]) == [100, 101, 102]


def test_the_weight_of_a_level_is_largest_at_one_half_and_where_nothing_is_known():
    group = Group(group_id=0, episodes=played("A", 1, *[True] * 5, *[False] * 3))
    half, never, unknown = KeptLevel(1), KeptLevel(2), KeptLevel(3)
    half.add(group, 0.5)
    never.add(Group(group_id=0, episodes=played("A", 2, *[False] * 8)), 0.5)
    assert half.weight == pytest.approx(5.5 / 9 * 3.5 / 9)
    assert never.weight == pytest.approx(0.5 / 9 * 8.5 / 9)
    assert (unknown.weight, unknown.pass_rate) == (0.25, None)


def test_a_pass_rate_forgets_and_ignores_faults():
    level = KeptLevel(1)
    for outcomes in ([True] * 4, [False] * 4):
        level.add(Group(group_id=0, episodes=played("A", 1, *outcomes)), 0.5)
    assert (level.num_solved, level.num_played, level.pass_rate) == (2.0, 6.0, pytest.approx(1 / 3))
    level.add(Group(group_id=0, episodes=played("A", 1, False, fault=True)), 0.5)
    assert (level.num_played, level.streak) == (6.0, -1)


def test_streaks_count_visits_that_all_ended_alike():
    level, found = KeptLevel(1), []
    for outcomes in ([True, True], [True, True], [False, False], [True, False], [True, True]):
        level.add(Group(group_id=0, episodes=played("A", 1, *outcomes)), 0.5)
        found.append(level.streak)
    assert found == [1, 2, -1, 0, 1]


def with_rates(**pool) -> PassRateLevels:
    """One level of each pool is solved half of the time, the others never."""
    levels = PassRateLevels(train_set("pass_rate", size=8, **pool), 100)
    for tag, pool in levels.pools.items():
        for level in pool:
            outcomes = [level is pool[0], False] * 4
            levels.record(played(tag, level.seed, *outcomes))
    return levels


def test_levels_that_are_solved_half_of_the_time_are_drawn_most():
    levels = with_rates(uniform_share=0.0, renew_after=0)
    drawn = Counter(seed for step in range(1, 201) for seed in set(seeds(levels, step)))
    # 0.25 against 7 x 0.052: it is drawn in 67 % of the steps, each of the others in 19 %.
    assert 0.5 < drawn[100] / 200 < 0.75 and 0.5 < drawn[108] / 200 < 0.75
    assert max(drawn[seed] for seed in range(101, 108)) < 0.35 * 200
    assert levels.metrics()["CoordFrozenLake/uniform_share"] == 0.0


def test_a_uniform_share_of_one_draws_all_alike_and_never_a_level_twice_in_a_rollout():
    levels = with_rates(uniform_share=1.0, renew_after=0)
    steps = [seeds(levels, step) for step in range(1, 401)]
    assert all(len(set(step)) == 4 for step in steps)
    drawn = Counter(seed for step in steps for seed in step)
    assert set(drawn) == set(range(100, 116)) and all(60 < count < 140 for count in drawn.values())
    assert levels.metrics()["FrozenLake/uniform_share"] == 1.0


def test_levels_that_teach_nothing_are_replaced_by_new_ones_after_all_pools():
    levels = with_rates(renew_after=2)
    assert levels.metrics()["FrozenLake/renewed"] == 0.0, "one visit is not enough"
    levels.record(played("FrozenLake", 101, False, False) + played("CoordFrozenLake", 109, True, True, group_id=1))
    assert [level.seed for level in levels.pools["FrozenLake"]] == [100, 116, *range(102, 108)]
    assert levels.pools["CoordFrozenLake"][1].seed == 109, "never, then always: not twice the same"
    metrics = levels.metrics()
    assert (metrics["FrozenLake/renewed"], metrics["FrozenLake/pool_visited"]) == (1.0, 7.0)


@pytest.mark.parametrize("kind", ["pool", "pass_rate"])
def test_a_checkpoint_continues_the_choice(kind):

    def advance(levels, steps) -> list:
        found = []
        for step in steps:
            choice = levels.choose(step, 0, range(4))
            tags = train_set().group_tags
            for group, (tag, level) in enumerate(zip(tags, choice, strict=True)):
                outcomes = [(level.seed + step + member) % 3 == 0 for member in range(2)]
                levels.record(played(tag, level.seed, *outcomes, group_id=group))
            found.append((choice, levels.metrics()))
        return found

    straight, first, resumed = (LEVELS[kind](train_set(kind, size=5, renew_after=1), 7) for _ in range(3))
    expected = advance(straight, range(1, 9))
    advance(first, range(1, 5))
    resumed.load(json.loads(json.dumps(first.to_json())))
    assert advance(resumed, range(5, 9)) == expected[4:]


def test_levels_that_were_chosen_otherwise_begin_anew_and_say_so(capsys):
    settings = train_set("pool", size=4)
    before, now = PoolLevels(settings, 7), PoolLevels(settings, 7)
    before.choose(1, 0, range(4))
    larger = PoolLevels(replace(settings, level_pool=replace(settings.level_pool, size=9)), 7)
    larger.load(before.to_json())
    now.load(PoolLevels(settings, 8).to_json())
    now.load(FreshLevels(train_set(), 7).to_json())
    said = capsys.readouterr().out.splitlines()
    sizes = "{'FrozenLake': 4, 'CoordFrozenLake': 4}"
    assert said == [
        f"The pools of levels begin anew: pools {sizes} -> {sizes.replace('4', '9')}.",
        "The pools of levels begin anew: seed 8 -> 7.",
        f"The pools of levels begin anew: kind fresh -> pool, seed None -> 7, pools {{}} -> {sizes}.",
    ]
    assert now.choose(1, 0, range(4)) == PoolLevels(settings, 7).choose(1, 0, range(4))


def test_pass_rates_are_counted_in_five_bins():
    shares = histogram("pool", [0.0, 0.0, 0.2, 0.5, 0.9, 1.0, 1.0, 1.0])
    assert shares == {"pool_none": 0.25, "pool_few": 0.125, "pool_some": 0.125, "pool_most": 0.125, "pool_all": 0.375}
    assert histogram("pool", []) == {}
    groups = group_episodes(played("A", 1, True, False) + played("A", 2, False, False, group_id=1))
    found = {name: value for name, value in played_metrics(groups).items() if value}
    assert found == {"A/played_some": 0.5, "A/played_none": 0.5}


def test_a_pool_smaller_than_the_groups_of_a_tag_is_refused(tmp_path):
    said = refused(tmp_path, "es_manager.train.levels=pool", "es_manager.train.level_pool.size=2")
    assert said == (
        "es_manager.train.level_pool.size is 2, but a tag has 3 groups, each with a level of its own. "
        "Set it to 3 or more."
    )


def test_a_run_plays_its_pool_and_no_other_level(tmp_path):
    changes = (
        "es_manager.train.levels=pass_rate",
        "es_manager.train.level_pool.size=2",
        "es_manager.train.level_pool.renew_after=1",
        "es_manager.train.refill=1",
        "actor_rollout_ref.rollout.rollout_filter_include_zero=False",
        "algorithm.adv_estimator=grpo",
        "model_path=tiny/frozen_lake",
        "es_manager.val.env_configs.n_groups=[2,2]",
        *TWO_TAGS,
    )
    run = train(tmp_path, *changes, env=LAKE[1:])
    found = [episode for step in (1, 2) for episode in run.episodes(step)]
    allowed = training_levels(small_config(tmp_path, *changes, env=LAKE[1:]), 10_000)
    assert {episode.seed for episode in found} <= set(allowed) and len(allowed) == 2 * 2 + 2 * 2 * 4
    pools = {"FrozenLake": {10_000, 10_001}, "CoordFrozenLake": {10_002, 10_003}}
    for episode in run.episodes(1):
        assert episode.group_id >= 4 or episode.seed in pools[episode.tag]
    for step in (1, 2):
        row, groups = run.metrics[step], group_episodes(run.episodes(step))
        num_refilled = row["rollout/refilled_groups"]
        assert len(groups) == 4 + num_refilled and row["train/rollout_attempts"] == 1 + (num_refilled > 0)
        assert all(len({(episode.seed, episode.tag) for episode in group.episodes}) == 1 for group in groups)
        assert row["rollout/unfilled_groups"] >= 4 - row["rollout/filter_kept_count"]
        assert row["levels/FrozenLake/pool_levels"] == 2.0
