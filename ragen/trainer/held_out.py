"""Levels that training has played, by content: a validation level is held out only while it is none of them.

Ranges of seeds are kept apart (ragen/config/seeds.py), but two seeds may make the same level: a small lake comes up
again and again. A training that starts from a model takes over what that model was trained on: `levels_behind`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from ragen.errors import FileError
from ragen.files import read_object, value_at
from ragen.llm_agent.metrics import success
from ragen.tracking import names
from ragen.trainer.checkpoints.checkpoint import STATE, read_state
from ragen.types import Episode, Metrics

BYTES = 8
"""Of a level's hash."""
FILE = "played_levels.json"
"""In the folder of a model that was trained on demonstrations: their levels."""


class PlayedLevels:
    """The contents of all levels that training has played so far."""

    def __init__(self) -> None:
        self.hashes: dict[int, None] = {}
        """A set in the order of play: its first n entries are what had been played at an earlier moment."""
        self.is_complete = True
        """Whether all of the training is known: with a checkpoint that does not say, no level can be called unseen."""

    def add(self, levels: Iterable[str]) -> None:
        """Levels by their hash; an empty one, of an environment that failed, is none."""
        self.hashes |= {int(level, 16): None for level in levels if level}

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

    def write(self, model: Path) -> None:
        """Into the folder of a model that was trained on them."""
        (model / FILE).write_text(json.dumps({"levels": self.to_json()}) + "\n")


def levels_behind(model: Path | str) -> PlayedLevels:
    """The levels that a model was trained on, as far as its folder tells: by FILE, or as the checkpoint of a run."""
    played, folder = PlayedLevels(), Path(model)
    path = folder / FILE
    if path.is_file():
        stored = value_at(read_object(path), "levels", path)
    elif (state := read_state(folder.parent)) is not None:
        path, stored = folder.parent / STATE, state.get("played_levels")
    else:
        return played
    try:
        played.load(stored)
    except (TypeError, ValueError, binascii.Error) as error:
        raise FileError(f"{path}: the levels cannot be read ({error}). Restore the file, or remove it.") from error
    return played


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
