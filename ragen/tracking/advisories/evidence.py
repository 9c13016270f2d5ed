"""Episodes that show what an advisory is about: for each rule, which of the newest rollout to open, and why.

A rule speaks of metrics; these are the games behind them. CHOICES has a function for each rule of rules.py, and a
test of tests/tracking/advisories/test_evidence.py for each. What they say holds numbers alone, no text of a model.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ragen.files import readable
from ragen.tracking.episodes import STEP_FILE, episode_files, episode_name, read_episodes
from ragen.types import Episode, Group, Status, Turn, group_episodes

MOST = 2
"""Episodes that a rule points at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exhibit:
    """An episode, or the members of a group side by side, that is worth a look."""

    file: str
    """The rollout: train_step_50"""
    index: int
    """Line of the episode in that file, from 0; of a group one of its members."""
    group: int
    member: int | None
    """None where the whole group is meant."""
    seed: int
    why: str

    def __str__(self) -> str:
        member = "" if self.member is None else f", member {self.member}"
        return f"{self.file}, group {self.group}{member}: {self.why}"

    def command(self, run: Path) -> str:
        """What prints it: ragen show RUN --rollout train_step_50 --seed 7 --member 3"""
        member = "" if self.member is None else f" --member {self.member}"
        return f"ragen show {shlex.quote(str(run))} --rollout {self.file} --seed {self.seed}{member}"


class Pick(NamedTuple):
    """One choice among the episodes of a rollout."""

    episode: Episode
    why: str
    is_group: bool = False


# --- what each rule points at -----------------------------------------------------------------------------------------


def invalid_turns(episodes: Sequence[Episode]) -> list[Pick]:
    """The group and the episode with most invalid replies."""

    def count(turns: Sequence[Turn]) -> str:
        return f"{sum(turn.is_invalid for turn in turns)} of {len(turns)} replies are invalid"

    groups = group_episodes(episodes)
    group = max(groups, key=lambda each: sum(turn.is_invalid for turn in _turns(each)))
    most = max(episodes, key=lambda each: sum(turn.is_invalid for turn in each.turns))
    if not any(turn.is_invalid for turn in most.turns):
        return []
    return [Pick(group.episodes[0], count(_turns(group)), is_group=True), Pick(most, count(most.turns))]


def best_and_usual_failures(episodes: Sequence[Episode]) -> list[Pick]:
    """The failure that earned most, and one that ended as most of them do."""
    failed = [each for each in episodes if not each.is_success]
    if not failed:
        return []
    best = max(failed, key=lambda each: each.score)
    [(status, count)] = Counter(each.status for each in failed).most_common(1)
    why = f"{count} of {len(episodes)} episodes end so: {status.value.replace('_', ' ')}"
    usual = [Pick(each, why) for each in failed if each.status is status and each is not best]
    return [Pick(best, f"of those that failed it earned most, {best.score:.2f}"), *usual[:1]]


def equal_groups(episodes: Sequence[Episode]) -> list[Pick]:
    """The groups whose members earn most alike, though not all of them are solved."""
    groups = [group for group in group_episodes(episodes) if not all(each.is_success for each in group.episodes)]
    found = sorted(groups, key=_spread)[:MOST]
    return [Pick(group.episodes[0], _earned(group), is_group=True) for group in found]


def equal_thoughts(episodes: Sequence[Episode]) -> list[Pick]:
    """Two episodes on different levels that begin with the same thought, or else two to compare."""
    thoughts = [(each.turns[0].thought, each) for each in episodes if each.turns]
    groups: dict[str, dict[int, Episode]] = {}
    for thought, episode in thoughts:
        groups.setdefault(thought, {}).setdefault(episode.group_id, episode)
    if not groups:
        return []
    same, first = max(groups.items(), key=lambda item: len(item[1]))
    if len(first) > 1:
        count = sum(thought == same for thought, _ in thoughts)
        why = f"its first thought is word for word that of {count} episodes on {len(first)} levels"
        return [Pick(episode, why) for episode in list(first.values())[:MOST]]
    found = [group.episodes[0] for group in group_episodes(episodes) if group.episodes[0].turns]
    return [Pick(episode, "do the first thoughts fit their levels?") for episode in found[:MOST]]


def equal_replies(episodes: Sequence[Episode]) -> list[Pick]:
    """The groups whose members begin with the fewest different replies."""

    def replies(group: Group) -> int:
        return len({each.turns[0].text for each in group.episodes if each.turns})

    def why(group: Group) -> str:
        different = f"{replies(group)} different replies" if replies(group) > 1 else "the same reply"
        return f"{len(group.episodes)} members began with {different}"

    groups = sorted(group_episodes(episodes), key=lambda group: replies(group) / len(group.episodes))
    return [Pick(group.episodes[0], why(group), is_group=True) for group in groups[:MOST]]


def out_of_turns(episodes: Sequence[Episode]) -> list[Pick]:
    """Episodes that ended with their last turn, those with fewest actions first."""
    found = [each for each in episodes if each.status is Status.OUT_OF_TURNS]
    shortest = sorted(found, key=lambda each: each.num_actions)[:MOST]
    return [Pick(each, f"{each.num_actions} actions in {len(each.turns)} turns, and none is left") for each in shortest]


def largest_advantages(episodes: Sequence[Episode]) -> list[Pick]:
    """The replies that surprised the critic most, above and below its value."""
    found = [(value, each) for each in episodes for turn in each.turns for value in turn.advantages]
    if not found:
        return []
    ends = {id(pair[1]): pair for pair in (max(found, key=lambda pair: pair[0]), min(found, key=lambda pair: pair[0]))}
    return [Pick(episode, f"an advantage of {value:+.2f}") for value, episode in ends.values()]


def least_likely(episodes: Sequence[Episode]) -> list[Pick]:
    """Where engine and trainer differ most: unlikely tokens."""
    found = [(min(turn.logprobs), each) for each in episodes for turn in each.turns if turn.logprobs]
    if not found:
        return []
    value, episode = min(found, key=lambda pair: pair[0])
    return [Pick(episode, f"a token with a log-prob of {value:.1f}, where such differences are largest")]


def cut_short(episodes: Sequence[Episode]) -> list[Pick]:
    """A reply that its limit cut, and an episode that the context ended."""
    picks = []
    cut = [each for each in episodes if any(turn.stop_reason == "length" for turn in each.turns)]
    if cut:
        tokens = max(len(turn.response_ids) for turn in cut[0].turns if turn.stop_reason == "length")
        why = f"a reply was cut after {tokens} tokens; so in {len(cut)} of {len(episodes)} episodes"
        picks.append(Pick(cut[0], why))
    full = [each for each in episodes if each.status is Status.CONTEXT_FULL]
    if full:
        picks.append(Pick(full[0], f"the context is full; so in {len(full)} of {len(episodes)} episodes"))
    return picks


def longest(episodes: Sequence[Episode]) -> list[Pick]:
    """The episodes with most tokens."""

    def tokens(episode: Episode) -> int:
        return sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in episode.turns)

    found = max(episodes, key=tokens)
    return [Pick(found, f"the longest of the rollout, {tokens(found)} tokens")]


def faults(episodes: Sequence[Episode]) -> list[Pick]:
    """What an environment or the engine lost, or else the longest episode."""
    lost = [each for each in episodes if each.status.is_fault]
    if not lost:
        return longest(episodes)
    return [Pick(lost[0], f"{lost[0].status.value.replace('_', ' ')}; so in {len(lost)} of {len(episodes)} episodes")]


def one_of_each(episodes: Sequence[Episode]) -> list[Pick]:
    """A solved one and one that is not."""
    solved = [each for each in episodes if each.is_success]
    failed = [each for each in episodes if not each.is_success]
    return [
        Pick(found[0], f"one of {len(found)} {word}")
        for found, word in ((solved, "solved"), (failed, "failed"))
        if found
    ]


def _turns(group: Group) -> list[Turn]:
    return [turn for episode in group.episodes for turn in episode.turns]


def _spread(group: Group) -> float:
    scores = [each.score for each in group.episodes]
    return max(scores) - min(scores)


def _earned(group: Group) -> str:
    low, high = (choose(each.score for each in group.episodes) for choose in (min, max))
    count = len(group.episodes)
    return f"all {count} members earned {low:.2f}" if low == high else f"{count} members earned {low:.2f} to {high:.2f}"


CHOICES: dict[str, Callable[[Sequence[Episode]], list[Pick]]] = {
    "form lost": invalid_turns,
    "silence pays": invalid_turns,
    "no form": invalid_turns,
    "all fail": best_and_usual_failures,
    "no variance": equal_groups,
    "template collapse": equal_thoughts,
    "entropy collapse": equal_replies,
    "few actions": out_of_turns,
    "critic useless": largest_advantages,
    "mismatch": least_likely,
    "truncation": cut_short,
    "failed": faults,
    "stalled": faults,
    "memory": longest,
    "all solved": one_of_each,
    "no progress": best_and_usual_failures,
    "healthy": one_of_each,
}
OF_VALIDATION = ("no progress",)
"""Rules about validation; the others are about training."""


# --- finding them -----------------------------------------------------------------------------------------------------


def find_exhibits(run: Path, rules: Sequence[str], *, last_step: int) -> dict[str, tuple[Exhibit, ...]]:
    """What each of the rules points at, in the newest rollout up to a step; nothing where no episodes can be read."""

    @cache
    def rollout(kind: str) -> tuple[str, list[Episode]]:
        file = newest(run, kind, last_step)
        if file is None:
            return "", []
        return episode_name(file), readable(lambda: list(read_episodes(file)), [], also=(OSError,))

    found = {}
    for rule in rules:
        name, episodes = rollout("val" if rule in OF_VALIDATION else "train")
        lines = {id(episode): index for index, episode in enumerate(episodes)}
        picks = CHOICES[rule](episodes)[:MOST] if episodes else []
        found[rule] = tuple(
            Exhibit(
                file=name,
                index=lines[id(pick.episode)],
                group=pick.episode.group_id,
                member=None if pick.is_group else pick.episode.member,
                seed=pick.episode.seed,
                why=pick.why,
            )
            for pick in picks
        )
    return found


def newest(run: Path, kind: str, last_step: int) -> Path | None:
    """The file of the last training or validation rollout up to a step; None where none was kept."""
    files = readable(lambda: episode_files(run), [])
    found = {file: STEP_FILE.fullmatch(episode_name(file)) for file in files}
    steps = {int(name[2]): file for file, name in found.items() if name and name[1] == kind}
    return steps[max(early)] if (early := [step for step in steps if step <= last_step]) else None
