"""What is trained on is not validated on: ranges of seeds are kept apart."""

import json

import pytest

from ragen.config import load_config
from ragen.config.load import CONFIG_DIR
from ragen.config.seeds import SEED_GAP, check_held_out, first_clear_seed, overlap, training_levels, validation_levels
from ragen.errors import ConfigError
from ragen.models.resolve import TINY_ROOT

SHIPPED = sorted(path.stem for path in CONFIG_DIR.glob("*.yaml") if path.stem != "envs")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configurations_hold_their_validation_levels_out(name):
    config = load_config(name)
    check_held_out(config, config.seed.train)


def was_demonstrated(levels: range) -> bool:
    """Whether one of these seeds is behind the demonstrations of an embedded model."""
    stored = [json.loads(path.read_text())["level_seeds"] for path in TINY_ROOT.glob("*/warm_start.json")]
    assert len(stored) == 3
    return any(overlap(levels, range(first, last + 1)) for first, last in stored)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_run_of_a_sweep_trains_on_levels_that_an_embedded_model_was_shown(name):
    config = load_config(name)
    assert config.seed.train is not None
    for number in range(4):
        assert not was_demonstrated(training_levels(config, config.seed.train + number * SEED_GAP))


def test_the_ranges_are_what_a_run_plays():
    config = load_config("quickstart", ["seed.train=120000", "trainer.total_training_steps=3"])
    assert training_levels(config, 120_000) == range(120_000, 120_000 + 3 * config.es_manager.train.env_groups)
    assert validation_levels(config) == range(123, 123 + config.es_manager.val.env_groups)


def test_pools_renewed_levels_and_refills_have_ranges_of_their_own():
    groups = ["es_manager.train.env_groups=8", "es_manager.train.env_configs.n_groups=[5,3]"]
    groups += ["es_manager.train.env_configs.tags=[FrozenLake,Bandit]", "es_manager.val.env_configs.n_groups=[8,8]"]
    groups += ["es_manager.val.env_groups=16", "trainer.total_training_steps=3", "es_manager.train.level_pool.size=10"]

    def count(*changes: str) -> int:
        levels = training_levels(load_config("base", [*groups, *(f"es_manager.train.{each}" for each in changes)]), 5)
        assert levels.start == 5
        return len(levels)

    assert count() == 3 * 8
    assert count("refill=2") == 3 * 8 * 3
    assert count("levels=pool", "refill=2") == 2 * 10, "a pool is refilled from itself"
    assert count("levels=pass_rate") == 2 * 10 + 3 * 8
    assert count("levels=pass_rate", "refill=1") == 2 * 10 + 3 * 8 * 2


def test_validation_inside_a_pool_is_refused():
    changes = ["trainer.total_training_steps=1", "es_manager.train.levels=pool", "seed.train=1000", "seed.val=1255"]
    with pytest.raises(ConfigError, match=r"overlap the levels 1000 to 1255 of seed\.train=1000"):
        check_held_out(load_config("base", changes), 1000)
    check_held_out(load_config("base", [*changes, "seed.val=1256"]), 1000)


def test_validation_inside_the_training_levels_is_refused_with_a_seed_that_works():
    changes = ["seed.train=1000", "trainer.total_training_steps=10", "es_manager.val.env_groups=16"]
    with pytest.raises(ConfigError) as error:
        check_held_out(load_config("base", [*changes, "seed.val=1079"]), 1000)
    assert str(error.value) == (
        "seed.val=1079: the validation levels 1079 to 1094 overlap the levels 1000 to 1079 of seed.train=1000. "
        "Set seed.val=1080, for example."
    )
    check_held_out(load_config("base", [*changes, "seed.val=1080"]), 1000)
    check_held_out(load_config("base", [*changes, "seed.val=984"]), 1000)


def test_a_seed_moves_behind_the_levels_it_would_overlap():
    assert [first_clear_seed(first, 4, range(10, 20)) for first in (6, 7, 19, 20)] == [6, 20, 20, 20]
