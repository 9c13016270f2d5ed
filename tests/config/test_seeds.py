"""What is trained on is not validated on: ranges of seeds are kept apart."""

import pytest

from ragen.config import CONFIG_DIR, load_config
from ragen.config.seeds import check_held_out, first_clear_seed, training_levels, validation_levels
from ragen.errors import ConfigError

SHIPPED = sorted(path.stem for path in CONFIG_DIR.glob("*.yaml") if path.stem != "envs")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configurations_hold_their_validation_levels_out(name):
    config = load_config(name)
    check_held_out(config, config.seed.train)


def test_the_ranges_are_what_a_run_plays():
    config = load_config("quickstart", ["seed.train=120000", "trainer.total_training_steps=3"])
    assert training_levels(config, 120_000) == range(120_000, 120_000 + 3 * config.es_manager.train.env_groups)
    assert validation_levels(config) == range(123, 123 + config.es_manager.val.env_groups)


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
