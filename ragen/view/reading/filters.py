"""The groups of a step by the deviation of their rewards, and which of them each rollout filter keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ragen.algorithms.filter_panel import describe, panel
from ragen.algorithms.filter_strategies import STRATEGIES
from ragen.algorithms.rollout_filter import METRICS, FilterResult, FilterSettings, RolloutFilter
from ragen.config.strict import build_dataclass
from ragen.files import readable
from ragen.tracking.episodes import STEP_FILE, read_episodes
from ragen.types import Episode, Group, group_episodes
from ragen.view.reading.folders import NotThere
from ragen.view.reading.index import Index
from ragen.view.reading.settings import at, read_settings

PREFIX = "rollout_filter_"


def replay(index: Index, step: int | None) -> dict[str, Any]:
    """The training step that is asked for, or the last; every filter sees the groups that training chose from."""
    files = training_files(index)
    if not files:
        raise NotThere("This run has kept no episodes of training, so no filter can be replayed.")
    step = max(files) if step is None else step
    if step not in files:
        raise NotThere(f"Step {step} has no episodes of training. There are {min(files)} to {max(files)}.")
    name = files[step]
    episodes = list(read_episodes(index.files()[name]))
    groups = group_episodes(episodes)
    complete = [group for group in groups if group.is_complete]
    filters = usable(own_filter(read_settings(index.run)) + [(each, False) for each in panel()], episodes)
    results = [(settings, is_own, RolloutFilter(settings)(complete)) for settings, is_own in filters]
    return {
        "file": name,
        "step": step,
        "steps": sorted(files),
        "num_incomplete": len(groups) - len(complete),
        "groups": [to_group(group, results[0][2], number) for number, group in enumerate(complete)],
        "filters": [to_filter(settings, is_own, result) for settings, is_own, result in results],
    }


def training_files(index: Index) -> dict[int, str]:
    """Step -> name of its file."""
    found = {name: STEP_FILE.fullmatch(name) for name in index.files()}
    return {int(match[2]): name for name, match in found.items() if match and match[1] == "train"}


def own_filter(settings: Mapping[str, Any]) -> list[tuple[FilterSettings, bool]]:
    """The filter of the run; none where its configuration has none that is known today.

    Nor one's own (module:name): no code that a run directory names is loaded for looking at it.
    """
    rollout = at(settings, "actor_rollout_ref", "rollout")
    names = [field.name for field in fields(FilterSettings)]
    given = {name: rollout[PREFIX + name] for name in names if isinstance(rollout, dict) and PREFIX + name in rollout}
    found = readable(lambda: build_dataclass(FilterSettings, given, PREFIX), None) if given else None
    return [(found, True)] if found and found.strategy in STRATEGIES and found.metric in METRICS else []


def usable(
    filters: Sequence[tuple[FilterSettings, bool]], episodes: Sequence[Episode]
) -> list[tuple[FilterSettings, bool]]:
    """Without those of entropies where the episodes hold none."""
    if all(turn.has_entropies for episode in episodes for turn in episode.turns):
        return list(filters)
    return [(each, is_own) for each, is_own in filters if METRICS[each.metric].quantity != "entropy"]


def to_group(group: Group, result: FilterResult, index: int) -> dict[str, Any]:
    first = group.episodes[0]
    return {
        "group": group.group_id,
        "tag": first.tag,
        "seed": first.seed,
        "rewards": result.rewards[index],
        "reward_std": result.reward_stds[index],
    }


def to_filter(settings: FilterSettings, is_own: bool, result: FilterResult) -> dict[str, Any]:
    return {
        "name": describe(settings),
        "is_own": is_own,
        "kept": result.selected_ids,
        "kept_ratio": result.kept_ratio,
        "group_scores": result.group_scores,
    }
