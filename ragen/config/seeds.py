"""Which levels a run plays, as ranges of seeds: what is trained on must not be validated on."""

from __future__ import annotations

from collections.abc import Mapping

from ragen.config.schema import Config, TrainSetConfig
from ragen.errors import ConfigError

SEED_GAP = 2_000_000
"""Between the training seeds of two runs of a sweep or study. A run plays the levels from seed.train on, far fewer than
this. The demonstrations behind the embedded models begin at half of it, and end before 1,400,000."""


def repeat_seed(seed: int | None, number: int, key: str) -> int:
    """seed.train of the run that repeats another one, of which `number` 1 is the plain run; `key` asked for it."""
    if seed is None:
        raise ConfigError(f"{key}: seed.train is null, so no run could be repeated. Give it a number.")
    return seed + (number - 1) * SEED_GAP


def training_levels(config: Config, seed: int) -> range:
    """The levels of a whole run, or more: what es_manager.train.levels may play, and refill."""
    train, last_step = config.es_manager.train, config.trainer.total_training_steps
    num_played, num_kept = fresh_seed(train, 0, last_step + 1), renewal_seed(train, 0)
    # A group that is played renews one level at most.
    return range(seed, seed + {"fresh": num_played, "pool": num_kept, "pass_rate": num_kept + num_played}[train.levels])


def fresh_seed(train: TrainSetConfig, seed: int, step: int, attempt: int = 0) -> int:
    """The fresh level of the first group; each further group has the next. Attempts above 0 refill the step's batch."""
    return seed + ((step - 1) * (1 + train.refill) + attempt) * train.env_groups


def pool_seed(train: TrainSetConfig, seed: int, tag: str) -> int:
    """The first level of a tag's pool; pools follow each other."""
    return seed + list(dict.fromkeys(train.env_configs.tags)).index(tag) * train.level_pool.size


def renewal_seed(train: TrainSetConfig, seed: int) -> int:
    """The level that is the first to replace another one."""
    return seed + len(set(train.env_configs.tags)) * train.level_pool.size


def validation_levels(config: Config) -> range:
    """The same ones at every validation, whatever is trained."""
    return range(config.seed.val, config.seed.val + config.es_manager.val.env_groups)


def overlap(one: range, other: range) -> bool:
    """Whether two ranges share a seed."""
    return one.start < other.stop and other.start < one.stop


def first_clear_seed(first: int, count: int, taken: range) -> int:
    """`first`, or the end of `taken` where the `count` levels from `first` on would overlap it.

    first_clear_seed(8, 4, range(10, 20)) -> 20, first_clear_seed(6, 4, range(10, 20)) -> 6
    """
    return taken.stop if overlap(range(first, first + count), taken) else first


def check_disjoint(key: str, kind: str, levels: range, others: Mapping[str, range], *, least: int = 0) -> None:
    """Refuse levels of `key` that another key's runs play; names a seed, `least` or more, that works with all."""
    for other_key, other in others.items():
        if overlap(levels, other):
            free = max(least, *(taken.stop for taken in others.values()))
            raise ConfigError(
                f"{key}={levels.start}: the {kind} levels {levels.start} to {levels.stop - 1} overlap the levels "
                f"{other.start} to {other.stop - 1} of {other_key}. Set {key}={free}, for example."
            )


def check_held_out(config: Config, train_seed: int | None) -> None:
    """Refuse a run that would train on its validation levels; a seed that is yet to be drawn keeps clear of them."""
    if train_seed is not None:
        trained = {f"seed.train={train_seed}": training_levels(config, train_seed)}
        check_disjoint("seed.val", "validation", validation_levels(config), trained)
