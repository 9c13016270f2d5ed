"""Validation success, read back from the metrics of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ragen.algorithms.statistics import Estimate, mean_of, unknown_interval, wilson
from ragen.files import read_yaml, value_at
from ragen.tracking.names import by_tag

SAMPLED, GREEDY = "val-env", "val-env-greedy"
"""What the names of their metrics begin with."""


class ValidationSet(NamedTuple):
    """What a run is validated on."""

    levels: dict[str, int]
    """Tag -> number of its levels."""
    group_size: int
    """Episodes of each level."""


def read_validation(run: Path) -> ValidationSet:
    """From the run's configuration; a folder without one has no levels."""
    if not (run / "config.yaml").is_file():
        return ValidationSet({}, 1)
    config_file = run / "config.yaml"
    config = read_yaml(config_file)
    names = ("env_configs.tags", "env_configs.n_groups", "group_size")
    tags, n_groups, group_size = (value_at(config, f"es_manager.val.{name}", config_file) for name in names)
    return ValidationSet(dict(zip(tags, n_groups, strict=True)), group_size)


def success_by_tag(record: Mapping[str, Any], levels: Mapping[str, int]) -> dict[str, Estimate]:
    """The success of each tag in a step's metrics, with its interval; empty for a step without validation."""
    found = {}
    for tag in by_tag(record, SAMPLED, "success"):
        estimate = success_of_tag(record, tag, levels.get(tag))
        assert estimate is not None
        found[tag] = estimate
    return found


def success_of_tag(
    record: Mapping[str, Any], tag: str, num_levels: int | None, *, rollout: str = SAMPLED, kind: str = ""
) -> Estimate | None:
    """The success of one tag, on all levels or on the `unseen` or `seen` ones; None where it was not measured.

    Runs of earlier versions did not log the interval. Theirs counts the levels, each as one trial: with several
    episodes per level it is rather too wide than too narrow.
    """
    name = f"{rollout}/{tag}/success{'_' if kind else ''}{kind}"
    if name not in record:
        return None
    if f"{name}_low" in record:
        return Estimate(record[name], record[f"{name}_low"], record[f"{name}_high"])
    return wilson(record[name], num_levels) if num_levels else unknown_interval(record[name])


def mean_success(record: Mapping[str, Any], levels: Mapping[str, int]) -> Estimate | None:
    """The mean over the tags; None for a step without validation."""
    found = success_by_tag(record, levels)
    return mean_of(list(found.values())).as_share() if found else None
