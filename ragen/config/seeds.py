"""Which levels a run plays, as ranges of seeds: what is trained on must not be validated on."""

from __future__ import annotations

from collections.abc import Mapping

from ragen.config.schema import Config
from ragen.errors import ConfigError

SEED_GAP = 2_000_000
"""Between the training seeds of two runs of a sweep or study. A run plays the levels from seed.train on, far fewer than
this. The demonstrations behind the embedded models begin at half of it, and end before 1,400,000."""


def training_levels(config: Config, seed: int) -> range:
    """The levels of a whole run: group g of step s plays seed + (s - 1) * env_groups + g."""
    return range(seed, seed + config.trainer.total_training_steps * config.es_manager.train.env_groups)


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
