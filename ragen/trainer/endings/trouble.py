"""Why nothing can be learned from a rollout: environments that raise, replies without the form, equal rewards.

The signs of a rollout are small: they are kept after every rollout, so that the end of a run can show an example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen.text import safe
from ragen.tracking.advisories.stop_cause import REMEDIES
from ragen.tracking.episodes import find_episodes, read_episodes
from ragen.types import Episode, Group, group_episodes

UNPARSED_SHARE = 0.95
"""From this share of replies without the form on, the form is the trouble."""
MAX_EXAMPLE = 1200
"""Characters of an example."""
MAX_GROUPS, MAX_MEMBERS = 4, 8
"""Rewards that an example shows."""

FAULTS = {
    "env_error": ("the environment raised", "Repair the environment, or check its env_config."),
    "env_timeout": (
        "the environment did not answer in time",
        "Repair the environment, or raise its step_timeout.",
    ),
    "engine_error": ("the engine gave up", "See the error above; docs/engines.md lists the engines."),
}
"""Status of a lost episode -> what happened, what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Why a rollout teaches nothing, or what an early stop found."""

    kind: str = ""
    """A status of FAULTS, `reply_format`, `equal_rewards`, `all_solved`, or the rule of an early stop."""
    sentence: str = ""
    example: str = ""
    """A traceback, a reply or rewards."""
    remedy: str = ""

    @property
    def is_fault(self) -> bool:
        """The machinery failed, not the model."""
        return self.kind in FAULTS

    def __str__(self) -> str:
        """One line."""
        return f"{self.sentence}: {(self.example.splitlines() or ['no reason given'])[0]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """What is kept of a rollout."""

    trouble: Trouble | None
    reply: str
    """The last reply of its first episode."""
    rewards: str
    """The scores of its first groups."""


def read_signs(episodes: Sequence[Episode]) -> Signs:
    """What a rollout shows."""
    reply = next((turn.text for episode in episodes for turn in episode.turns[-1:]), "")
    return Signs(
        trouble=find_trouble(episodes),
        reply=safe(reply, MAX_EXAMPLE),
        rewards=list_rewards(group_episodes(episodes)),
    )


def signs_of_step(run_dir: Path, step: int) -> dict[str, Signs]:
    """The signs of a step that was played before, as far as its episodes were kept."""
    files = {kind: find_episodes(run_dir, f"{kind}_step_{step}") for kind in ("train", "val")}
    return {kind: read_signs(list(read_episodes(file))) for kind, file in files.items() if file is not None}


def find_trouble(episodes: Sequence[Episode]) -> Trouble | None:
    """The first of the known troubles that the whole rollout has; None when something can be learned from it."""
    lost = [episode for episode in episodes if episode.status.is_fault]
    others = [episode for episode in episodes if not episode.status.is_fault]
    idle = [episode for episode in others if not any(turn.executed for turn in episode.turns)]
    # An episode without an action has not met the environment: it says nothing for it.
    is_untouched = len(lost) + len(idle) == len(episodes)
    if lost and is_untouched and len(lost) >= len(idle):
        return _all_lost(lost, num_idle=len(idle))
    turns = [turn for episode in episodes for turn in episode.turns]
    unparsed = [turn for turn in turns if not turn.is_parsed]
    if turns and (is_untouched or len(unparsed) >= UNPARSED_SHARE * len(turns)):
        num_cut = sum(turn.stop_reason == "length" for turn in unparsed)
        has_empty = is_untouched and len(unparsed) < len(turns)
        start = f"none of {len(turns)} replies names an action, and " if has_empty else ""
        return Trouble(
            kind="reply_format",
            sentence=f"{start}{len(unparsed)} of {len(turns)} replies do not have the form that the prompt asks for, "
            f"{num_cut} of them cut at their limit",
            example=safe((unparsed or turns)[0].text, MAX_EXAMPLE),
            remedy=REMEDIES["no form"],
        )
    groups = [group for group in group_episodes(episodes) if group.is_complete]
    is_equal = all(len({episode.score for episode in group.episodes}) == 1 for group in groups)
    if not groups or not is_equal or all(len(group.episodes) == 1 for group in groups):
        return None
    if all(episode.is_success for group in groups for episode in group.episodes):
        return Trouble(
            kind="all_solved",
            sentence="every episode is solved, so that the rewards of a group do not differ",
            example=list_rewards(groups),
            remedy="Nothing is left to learn here: choose harder levels.",
        )
    return Trouble(
        kind="equal_rewards",
        sentence="the rewards of each group are all equal, so that no episode is better than another",
        example=list_rewards(groups),
        remedy="Choose easier levels or a reward that tells replies apart, or let replies vary more: "
        "actor_rollout_ref.rollout.temperature, a larger es_manager.train.group_size.",
    )


def _all_lost(lost: Sequence[Episode], *, num_idle: int) -> Trouble:
    kind, count = Counter(episode.status.value for episode in lost).most_common(1)[0]
    what, remedy = FAULTS[kind]
    others = [f"{len(lost) - count} were lost otherwise"] if count < len(lost) else []
    others += [f"{num_idle} had no readable action"] if num_idle else []
    which = f"{count} episodes (and {', '.join(others)})" if others else f"all {count} episodes"
    error = next(episode.error for episode in lost if episode.status.value == kind)
    return Trouble(kind=kind, sentence=f"{what} in {which}", example=safe(error, MAX_EXAMPLE), remedy=remedy)


def list_rewards(groups: Sequence[Group]) -> str:
    """group 0: -0.1 -0.1; group 1: 1 1; ..."""
    shown = []
    for group in groups[:MAX_GROUPS]:
        scores = [f"{episode.score:g}" for episode in group.episodes]
        more = " ..." if len(scores) > MAX_MEMBERS else ""
        shown.append(f"group {group.group_id}: {' '.join(scores[:MAX_MEMBERS])}{more}")
    return "; ".join(shown + ["..."] * (len(groups) > MAX_GROUPS))
