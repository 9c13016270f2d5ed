"""What each rank is doing, noted in a store that the driver keeps: ranks that are stuck can still be read about."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress

from torch.distributed import Store

IDLE = "idle"
"""The phase of a rank that has answered."""


def _key(number: int) -> str:
    return f"note {number}"


def notes(store: Store, number: int) -> Callable[[str | None], None]:
    """A function that notes in the store what a rank is doing; None is another piece of the same."""
    phase, count = "", 0

    def note(new_phase: str | None) -> None:
        nonlocal phase, count
        phase, count = (phase, count + 1) if new_phase is None else (new_phase, 0)
        with suppress(RuntimeError):  # without a driver this process ends anyway
            store.set(_key(number), json.dumps([phase, count]))

    return note


class Watch:
    """What is known of the ranks' progress during one call; at first nothing."""

    def __init__(self, num_ranks: int, now: float) -> None:
        self.notes = [("", -1)] * num_ranks
        """Phase and number of pieces done, of each rank."""
        self.moved = [now] * num_ranks
        """When each of them last changed."""

    def describe_waiting(self, now: float) -> str:
        """One line per rank; those that are behind hold up the others."""
        done = [sys.maxsize if phase == IDLE else count for phase, count in self.notes]
        lines = []
        for number, ((phase, count), moved) in enumerate(zip(self.notes, self.moved, strict=True)):
            if phase == IDLE:
                state = "has finished"
            elif min(done) == max(done):
                state = "is as far as all others: one is stopped, or the network is (see `ray stack`)"
            else:
                state = "holds up the others" if done[number] == min(done) else "waits for others"
            lines.append(f"  worker {number}: {phase}, {count} pieces done, no news for {now - moved:.0f} s, {state}")
        return "\n".join(lines)

    def read(self, store: Store, now: float) -> None:
        """Take over what the ranks have noted."""
        for number, before in enumerate(self.notes):
            if store.check([_key(number)]):
                phase, count = json.loads(store.get(_key(number)))
                if (phase, count) != before:
                    self.notes[number], self.moved[number] = (phase, count), now
