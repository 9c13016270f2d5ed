"""Validation success, read back from the metrics of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ragen.algorithms.statistics import Estimate, mean_of, unknown_interval, wilson
from ragen.files import number, read_object, read_yaml, value_at
from ragen.tracking import names
from ragen.tracking.rundir import PREFLIGHT

MODES = {"sampled": names.VALIDATION, "greedy": names.GREEDY_VALIDATION}
"""Way of replying -> its validation."""
NO_VALIDATION = "has no validation metrics (val-env/<tag>/success). Train with trainer.test_freq > 0."


class ValidationSet(NamedTuple):
    """What a run is validated on."""

    levels: dict[str, int]
    """Tag -> number of its levels."""
    group_size: int
    """Episodes of each level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TagSuccess:
    """The success of one environment in one validation."""

    success: Estimate
    """On all levels."""
    unseen: Estimate | None
    """On those that training had not played by then; None where that was not measured, or there are none."""
    num_unseen: int
    num_seen: int

    @property
    def is_mixed(self) -> bool:
        """Whether there are levels of both kinds, so that the unseen ones tell something of their own."""
        return self.num_unseen > 0 and self.num_seen > 0


def read_validation(run: Path) -> ValidationSet:
    """From the run's configuration; a folder without one has no levels."""
    config_file = run / "config.yaml"
    if not config_file.is_file():
        return ValidationSet({}, 1)
    config = read_yaml(config_file)
    keys = ("env_configs.tags", "env_configs.n_groups", "group_size")
    tags, n_groups, group_size = (value_at(config, f"es_manager.val.{key}", config_file) for key in keys)
    return ValidationSet(dict(zip(tags, n_groups, strict=True)), group_size)


def success_by_tag(
    row: Mapping[str, Any], levels: Mapping[str, int] | None = None, *, rollout: str = names.VALIDATION
) -> dict[str, TagSuccess]:
    """The success of each tag in a step's metrics; empty for a step without validation.

    `levels`, the number of levels of each tag, gives rows without intervals theirs. Runs of earlier versions wrote
    such rows. Every level counts as one trial: with several episodes per level that is rather too wide than too narrow.
    """
    found = {}
    for tag in names.by_tag(row, rollout, names.SUCCESS):
        counts = (names.join(rollout, tag, names.num_levels(novelty)) for novelty in names.NOVELTIES)
        num_unseen, num_seen = (int(row.get(count, 0)) for count in counts)
        name, unseen = names.join(rollout, tag, names.SUCCESS), names.join(rollout, tag, names.success_on(names.UNSEEN))
        found[tag] = TagSuccess(
            success=_estimate(row, name, (levels or {}).get(tag)),
            unseen=_estimate(row, unseen, num_unseen) if unseen in row else None,
            num_unseen=num_unseen,
            num_seen=num_seen,
        )
    return found


def _estimate(row: Mapping[str, Any], name: str, num_trials: int | None) -> Estimate:
    low, high = names.interval_ends(name)
    if low in row:
        return Estimate(row[name], row[low], row[high])
    return wilson(row[name], num_trials) if num_trials else unknown_interval(row[name])


def mean_success(row: Mapping[str, Any], levels: Mapping[str, int] | None = None) -> Estimate | None:
    """The mean over the tags; None for a step without validation."""
    found = success_by_tag(row, levels)
    return over_tags(found) if found else None


def over_tags(found: Mapping[str, TagSuccess]) -> Estimate:
    """The one number of a validation: the mean over its tags."""
    return mean_of([each.success for each in found.values()]).as_share()


def read_references(run: Path) -> dict[str, dict[str, float]]:
    """Tag -> success of the policies `random` and `solver`, where the run has measured it.

    Runs of `ragen demo` once had a file of their own. What is no number in a file of somebody else is left out.
    """
    found, old = run / PREFLIGHT, run / "references.json"
    if found.exists():
        tags = {tag: _mapping(row).get("policies") for tag, row in _mapping(read_object(found).get("tags")).items()}
        successes = {
            tag: {name: _mapping(row).get("success") for name, row in _mapping(policies).items()}
            for tag, policies in tags.items()
        }
    else:
        successes = read_object(old) if old.exists() else {}
    known = {"random": "random", "random policy": "random", "solver": "solver"}
    rows = {tag: _mapping(row) for tag, row in successes.items()}
    return {
        tag: {known[name]: float(value) for name in row if name in known and (value := number(row[name])) is not None}
        for tag, row in rows.items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
