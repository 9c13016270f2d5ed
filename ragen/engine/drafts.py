"""Guesses of what a reply says next, from what has been said before in the same rollout.

Replies and prompts of a rollout are one long text. Where the last tokens of an open reply stand in it already, what
followed them there is the guess: the session's own earlier turns, its siblings on the same level and all others alike.
A guess is checked by drawing each of its tokens with the noise of its own position, so the index makes a rollout
faster or slower, and another one only where two tokens are so close that rounding decides. Nothing of it is saved: it
forgets at the end of a rollout, so that every rollout starts from the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ragen.engine.base import Total
from ragen.types import Metrics

LENGTHS = (8, 6, 4, 3, 2, 1)
"""Numbers of last tokens that are looked up; the longest agreement found counts."""
LONGEST = LENGTHS[0]
NONE = -1
"""No token: the end of what is known of a text."""
TABLE_BITS = 20
_FACTORS = np.random.default_rng(0).integers(2**63, 2**64, LONGEST, dtype=np.uint64) | np.uint64(1)
_COLUMNS = np.array(LENGTHS) - 1
_BACK, _AHEAD = np.arange(1, LONGEST + 1), np.arange(64)

MOST_ROWS = 128
"""Tokens of a check: up to here it takes hardly longer than a launch with a token of each session."""
WORTH_IT = 1.4
"""Tokens that a session must gain by a check on average: it takes that much longer than a plain launch, and a little
more, because the host waits for its result."""
NUM_TRIALS = 8
"""Launches before drafts are judged."""
PAUSE = 64
"""Launches without drafts after they were not worth it; then they are tried again."""


@dataclass(slots=True)
class DraftCounts:
    """What became of drafts in a rollout."""

    launches: float = 0
    """All launches that decoded."""
    checks: float = 0
    """Those of them that checked drafts."""
    drafted: float = 0
    accepted: float = 0
    sessions: float = 0
    """Sessions of the checks, summed: what they would have gained in tokens without drafts."""
    saved: float = 0.0
    """Plain launches that would have given each session its mean share of the drafts that were right."""

    def add(self, *, sessions: int, drafted: int, accepted: int) -> None:
        """A check arrived."""
        self.checks += 1
        self.sessions += sessions
        self.drafted += drafted
        self.accepted += accepted
        self.saved += accepted / max(sessions, 1)

    def summed(self, total: Total) -> DraftCounts:
        """Those of all processes that train together: each plays a part of a rollout."""
        return DraftCounts(**total(asdict(self)))

    def metrics(self) -> Metrics:
        """For the log; empty where no drafts were checked."""
        if not self.checks:
            return {}
        return {
            "rollout/decode_launches": float(self.launches),
            "rollout/draft_launches": float(self.checks),
            "rollout/draft_launches_saved": self.saved,
            "rollout/draft_acceptance": self.accepted / max(self.drafted, 1),
            "rollout/draft_tokens_per_launch": 1 + self.accepted / max(self.sessions, 1),
        }


class Judge:
    """Whether drafts are worth their check, by counts alone: never by a clock, so that batches repeat."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Judge anew."""
        self._num_judged = self._num_paused = 0
        self._sessions = self._tokens = 0.0

    @property
    def is_worth_it(self) -> bool:
        """Drafts are tried, or the last ten or so launches gained enough."""
        return self._num_judged < NUM_TRIALS or self._tokens >= WORTH_IT * self._sessions

    def count(self, *, sessions: int, tokens: int) -> None:
        """A launch that might check drafts gained so many tokens."""
        self._num_judged += 1
        self._sessions = 0.9 * self._sessions + sessions
        self._tokens = 0.9 * self._tokens + tokens

    def skip(self) -> None:
        """A launch went without because drafts were not worth it."""
        self._num_paused += 1
        if self._num_paused >= PAUSE:
            self.reset()


class SuffixIndex:
    """The texts of a rollout, one open text per slot, and where the ends of any of them were seen last.

    texts [5, 6, 7, 8] and [1, 6, 7]; the second is open -> its end [6, 7] is in the first, so [8] is proposed
    """

    def __init__(self, num_slots: int) -> None:
        self.ends = np.zeros(num_slots, dtype=np.int64)
        """Where the next token of each slot's text goes."""
        self._text = np.zeros(0, dtype=np.int64)
        self._table = np.zeros(2**TABLE_BITS, dtype=np.int32)
        """Hash of some tokens -> position after the last of them, where they were seen last; 0 is nowhere."""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        # In front of the first text are enough positions without a token to look back at.
        self._text = np.full(max(len(self._text), 2**16), NONE, dtype=np.int64)
        self._size = LONGEST + 1
        self._table.fill(0)

    def begin(self, slot: int, prompt: Sequence[int], *, num_known: int, room: int) -> None:
        """A new text in this slot: what is not known of a prompt and a little before it, and room for the reply."""
        prompt = prompt[max(0, min(num_known, len(prompt)) - LONGEST) :]
        start, needed = self._size, self._size + len(prompt) + room + 1
        if needed + len(_AHEAD) > len(self._text):
            more = np.full(needed + len(self._text), NONE, dtype=np.int64)
            self._text = np.concatenate([self._text, more])
        self._size, self.ends[slot] = needed, start + len(prompt)
        self._text[start : start + len(prompt)] = prompt
        if len(prompt) > LONGEST:
            self._remember(np.arange(start + 1, start + len(prompt)))

    def extend(self, slots: np.ndarray, offsets: np.ndarray, tokens: np.ndarray) -> None:
        """Token `offsets[i]` of those that are new in `slots[i]` is `tokens[i]`; each slot's begin with 0, in order."""
        positions = self.ends[slots] + offsets
        self._text[positions] = tokens
        np.maximum.at(self.ends, slots, positions + 1)
        self._remember(positions)

    def propose(self, slots: np.ndarray, most: int) -> np.ndarray:
        """Up to `most` tokens for each slot, [slots, most], NONE behind the last."""
        windows = self._windows(self.ends[slots])
        found = self._table[self._buckets(windows)]  # [slots, lengths]
        agrees = self._windows(found) == windows[:, None]
        lengths = np.logical_and.accumulate(agrees, axis=2).sum(axis=2)
        best = lengths.argmax(axis=1)  # the first of equals: found under the longest key
        rows = np.arange(len(slots))
        drafts = self._text[found[rows, best][:, None] + _AHEAD[:most]]
        is_known = np.logical_and.accumulate(drafts != NONE, axis=1) & (lengths[rows, best] > 0)[:, None]
        return np.where(is_known, drafts, NONE)

    def _windows(self, ends: np.ndarray) -> np.ndarray:
        """The tokens before each end, the last one first, [..., LONGEST]."""
        return self._text[np.maximum(ends[..., None] - _BACK, 0)]

    def _buckets(self, windows: np.ndarray) -> np.ndarray:
        """Hashes of the first tokens of each window, for each of LENGTHS."""
        sums = (windows.view(np.uint64) * _FACTORS).cumsum(axis=-1, dtype=np.uint64)
        return (sums[..., _COLUMNS] >> np.uint64(64 - TABLE_BITS)).astype(np.int64)

    def _remember(self, positions: np.ndarray) -> None:
        """The tokens before each of these positions are followed by the one that stands there."""
        self._table[self._buckets(self._windows(positions))] = positions[:, None]
