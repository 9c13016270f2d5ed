"""Levels that training has played, by content: a validation level is held out only while it is none of them.

Ranges of seeds are kept apart (ragen/config/seeds.py), but two seeds may make the same level: a small lake comes up
again and again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import islice

from ragen.llm_agent.metrics import success
from ragen.tracking import names
from ragen.types import Episode, Metrics

BYTES = 8
"""Of a level's hash."""


class PlayedLevels:
    """The contents of all levels that training has played so far."""

    def __init__(self) -> None:
        self.hashes: dict[int, None] = {}
        """A set in the order of play: its first n entries are what had been played at an earlier moment."""
        self.is_complete = True
        """Whether all of the training is known: with a checkpoint that does not say, no level can be called unseen."""

    def add(self, episodes: Iterable[Episode]) -> None:
        self.hashes |= {int(episode.level, 16): None for episode in episodes if episode.level}

    def __len__(self) -> int:
        return len(self.hashes)

    def __contains__(self, episode: Episode) -> bool:
        return bool(episode.level) and int(episode.level, 16) in self.hashes

    def to_json(self, count: int | None = None) -> str | None:
        """The first `count` levels, or all, packed: 11 characters a level; None where not all are known."""
        if not self.is_complete:
            return None
        packed = b"".join(value.to_bytes(BYTES, "little") for value in islice(self.hashes, count))
        return base64.b64encode(packed).decode()

    def load(self, text: str | None) -> None:
        """The inverse of `to_json`."""
        self.is_complete = text is not None
        packed = base64.b64decode(text or "")
        starts = range(0, len(packed), BYTES)
        self.hashes = {int.from_bytes(packed[start : start + BYTES], "little"): None for start in starts}


def held_out_metrics(episodes: Sequence[Episode], played: PlayedLevels) -> Metrics:
    """`<tag>/success_unseen` and `<tag>/levels_unseen` on levels that training has not played, `*_seen` on the others.

    Beside the success are the ends of its interval, `<tag>/success_unseen_low` and `_high`.

    Nothing where training is not wholly known. A kind without any level has a count of 0 and no success. Faults are
    left out, as everywhere.
    """
    metrics: Metrics = {}
    if not played.is_complete:
        return metrics
    for tag in dict.fromkeys(episode.tag for episode in episodes):
        members = [episode for episode in episodes if episode.tag == tag and not episode.status.is_fault]
        for novelty in names.NOVELTIES:
            chosen = [episode for episode in members if (episode in played) == (novelty == names.SEEN)]
            metrics[names.join(tag, names.num_levels(novelty))] = float(len({episode.group_id for episode in chosen}))
            if chosen:
                found, name = success(chosen), names.join(tag, names.success_on(novelty))
                low, high = names.interval_ends(name)
                metrics |= {name: found.mean, low: found.low, high: found.high}
    return metrics
