"""`ragen replay-filter`: which groups each rollout filter would have kept, from the saved episodes of a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ragen.algorithms.filter_panel import describe, panel
from ragen.algorithms.rollout_filter import METRICS, FilterResult, FilterSettings, RolloutFilter
from ragen.config.actor_rollout_ref import RolloutConfig
from ragen.config.load import compose, compose_run
from ragen.config.strict import build_dataclass
from ragen.config.validate import FILTER_VALUES
from ragen.errors import RagenError
from ragen.tracking.console import console, print_table
from ragen.tracking.episodes import config_of, episode_files, episode_name, read_episodes
from ragen.tracking.names import FILTER, with_prefix
from ragen.types import Episode, group_episodes

logger = logging.getLogger(__name__)

PREFIX = "rollout_filter_"
COLUMNS = ("filter", "kept", "ratio", "mean group score", "groups in order of choice")
TOTAL_COLUMNS = ("filter", "kept", "range", "empty", "score")
OWN = "the run's own: "
TRAINING = "train*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """One filter applied to one episode file."""

    file: str
    filter: str
    """What the filter is called in the table."""
    num_groups: int
    num_incomplete: int
    """Groups left out beforehand because a member was lost to a fault; training leaves them out, too."""
    result: FilterResult

    @property
    def kept_group_scores(self) -> list[float]:
        """The number by which the filter chose, of every group that is kept."""
        kept_ids = set(self.result.kept_ids)
        pairs = zip(self.result.group_ids, self.result.group_scores, strict=True)
        return [score for group, score in pairs if group in kept_ids]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "filter": self.filter,
            "num_groups": self.num_groups,
            "num_incomplete": self.num_incomplete,
            "kept_ids": self.result.kept_ids,
            "selected_ids": self.result.selected_ids,
            "scores": dict(zip(map(str, self.result.group_ids), self.result.group_scores, strict=True)),
            "metrics": with_prefix(FILTER, self.result.metrics),
        }


def replay_run(
    *, path: Path, overrides: Sequence[str], files: str | None, reward_scale: float, per_step: bool, as_json: bool
) -> None:
    """Replay the episode files of a run and print what each filter keeps."""
    filters = choose_filters(path, overrides)
    chosen = select_files(path, files)
    done: list[list[Replay]] = []
    for file in chosen:
        replays = replay(file, filters, reward_scale=reward_scale)
        done.append(replays)
        if as_json:
            for each in replays:
                print(json.dumps(each.to_json()))
        elif per_step or len(chosen) == 1:
            report(replays)
    if len(chosen) > 1 and not as_json:
        report_total(done)


def select_files(path: Path, pattern: str | None) -> list[Path]:
    """The episode files that match, steps in their order; without a pattern those of training, or all."""
    files = episode_files(path)
    wanted = pattern or TRAINING
    chosen = [file for file in files if file.match(wanted) or Path(episode_name(file)).match(wanted)]
    if pattern and not chosen:
        raise RagenError(f"No episode file of {path} matches {pattern!r}.")
    return chosen or files


def replay(file: Path, filters: Mapping[str, FilterSettings], *, reward_scale: float = 1.0) -> list[Replay]:
    """Every filter applied to the groups of an episode file."""
    episodes = list(read_episodes(file))
    for turn in (turn for episode in episodes for turn in episode.turns):
        turn.reward, turn.penalty = turn.reward * reward_scale, turn.penalty * reward_scale
    groups = group_episodes(episodes)
    complete = [group for group in groups if group.is_complete]
    return [
        Replay(
            file=episode_name(file),
            filter=name,
            num_groups=len(complete),
            num_incomplete=len(groups) - len(complete),
            result=RolloutFilter(settings)(complete),
        )
        for name, settings in _usable(filters, episodes, file).items()
    ]


def _usable(
    filters: Mapping[str, FilterSettings], episodes: Sequence[Episode], file: Path
) -> Mapping[str, FilterSettings]:
    """Filters of entropies are left out where the episodes have none, unless they alone are asked for."""
    if all(turn.has_entropies for episode in episodes for turn in episode.turns):
        return filters
    usable = {name: s for name, s in filters.items() if METRICS[s.metric].quantity != "entropy"}
    for name in filters.keys() - usable.keys() if usable else ():
        logger.warning("%s holds no entropies (an earlier version wrote it): %s is left out.", file, name)
    return usable or filters


def report(replays: Sequence[Replay]) -> None:
    """The table of one file."""
    first = replays[0]
    lost = f", {first.num_incomplete} incomplete groups left out" if first.num_incomplete else ""
    deviation = fmean(first.result.reward_stds or [0.0])
    title = f"{first.file}: {first.num_groups} groups, mean in-group reward deviation {deviation:.3g}{lost}"
    print_table(title, COLUMNS, [_row(each) for each in replays])
    if first.num_groups and all(len(row) == 1 for row in first.result.rewards):
        console.print("Every group has one episode: nothing varies inside a group, so all deviations are 0.")


def report_total(done: Sequence[Sequence[Replay]]) -> None:
    """One table over all files, a row per filter."""
    first = [replays[0] for replays in done]
    num_groups, num_lost = sum(each.num_groups for each in first), sum(each.num_incomplete for each in first)
    lost = f", {num_lost} incomplete ones left out" if num_lost else ""
    title = f"{first[0].file} to {first[-1].file}: {len(done)} files, {num_groups} groups{lost}"
    print_table(title, TOTAL_COLUMNS, [_total_row(replays) for replays in zip(*done, strict=True)])
    console.print("kept: mean share of the groups of a file; empty: files that keep none.")
    console.print("score: mean group score of those kept. --per-step shows each file.")


def _total_row(replays: Sequence[Replay]) -> tuple[str, ...]:
    """One filter over all files."""
    ratios = [each.result.kept_ratio for each in replays]
    scores = [score for each in replays for score in each.kept_group_scores]
    return (
        replays[0].filter.replace(OWN, "own: "),
        f"{fmean(ratios):.2f}",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
        str(sum(not each.kept_group_scores for each in replays)),
        f"{fmean(scores):.3g}" if scores else "-",
    )


def _row(each: Replay) -> tuple[str, ...]:
    result, kept = each.result, each.kept_group_scores
    return (
        each.filter,
        str(len(kept)),
        f"{result.kept_ratio:.2f}",
        f"{fmean(kept):.3g}" if kept else "-",
        " ".join(map(str, result.selected_ids)) or "none",
    )


# --- filters to try -------------------------------------------------------------------------------------------------


def choose_filters(path: Path, overrides: Sequence[str]) -> dict[str, FilterSettings]:
    """Name -> filter: the one the overrides describe, else the run's own and the panel."""
    settings = read_settings(path, overrides)
    if overrides:
        return {describe(settings): settings}
    own = {OWN + describe(settings): settings} if config_of(path).exists() else {}
    return own | {describe(settings): settings for settings in panel()}


def read_settings(path: Path, overrides: Sequence[str] = ()) -> FilterSettings:
    """The filter of a run, or of base for a file without one, with `key=value` words over it.

    Keys may be written with their whole path, without it, or without rollout_filter_: ["value=0.5", "strategy=min_p"]
    """
    words = [full_key(word) if "=" in word else word for word in overrides]
    config_file = config_of(path)
    tree = compose_run(words, config_file.parent) if config_file.exists() else compose("base", words)
    # Nothing is trained: the rest of the configuration, batch sizes above all, need not fit the filter.
    rollout = build_dataclass(RolloutConfig, tree["actor_rollout_ref"]["rollout"])
    if rollout.rollout_filter_strategy in FILTER_VALUES:
        FILTER_VALUES[rollout.rollout_filter_strategy].check(rollout.rollout_filter_value, f"{PREFIX}value")
    return FilterSettings.from_config(rollout)


def full_key(word: str) -> str:
    """strategy=min_p -> actor_rollout_ref.rollout.rollout_filter_strategy=min_p"""
    key, _, value = word.partition("=")
    return f"actor_rollout_ref.rollout.{PREFIX}{key.rpartition('.')[2].removeprefix(PREFIX)}={value}"
