"""Server-sent events: which runs have changed, so that a page asks only for those.

Whoever connects, or connects again, is told of every run first: nothing is missed, whatever happened in between. From
then on only changes are sent. Without a listener nothing is looked at.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent

from ragen.files import stamp
from ragen.view.reading.folders import Folders
from ragen.view.reading.series import METRICS
from ragen.view.reading.summary import read_status, state_of

EVERY_S = 0.5
"""How often the folders are looked at while somebody listens."""
ENDING_S = 0.5
"""How long an answer may take to end itself after Ctrl-C."""
RETRY_MS = 1000
"""How long a browser waits before it connects again."""


class Mark(NamedTuple):
    """What changes when a run does."""

    metrics: int
    """Bytes of metrics.jsonl."""
    state: str
    version: Any
    """Of the files behind it."""
    episodes: int
    """When the last file of episodes came, in milliseconds since 1970."""


class Watch:
    """The marks of all runs, shared by everybody who listens."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._lock = threading.Lock()
        self._marks: dict[str, Mark] = {}
        self._looked_at: float | None = None
        self._statuses: dict[str, tuple[Any, dict[str, Any]]] = {}

    def look(self) -> dict[str, Mark]:
        """Id -> mark, as of now or of an instant ago."""
        with self._lock:
            if self._looked_at is None or time.monotonic() - self._looked_at > EVERY_S / 2:
                entries = self.folders.entries()
                self._marks = {run_id: self._mark(run_id, entry.path) for run_id, entry in entries.items()}
                self._statuses = {run_id: self._statuses[run_id] for run_id in entries}
                self._looked_at = time.monotonic()
            return self._marks

    def _mark(self, run_id: str, run: Path) -> Mark:
        metrics, status, episodes = (stamp(run / name) for name in (METRICS, "status.json", "episodes"))
        if status is None or self._statuses.get(run_id, (None,))[0] != status:
            self._statuses[run_id] = status, read_status(run)
        state, _ = state_of(self._statuses[run_id][1], run)
        return Mark(metrics[1] if metrics else 0, state, (metrics, status), episodes[0] // 10**6 if episodes else 0)


def changes(before: dict[str, Mark], now: dict[str, Mark]) -> dict[str, Any]:
    """In the form of the API; empty where nothing has changed."""
    changed = {
        run_id: {"metrics": mark.metrics, "state": mark.state, "episodes": mark.episodes}
        for run_id, mark in now.items()
        if before.get(run_id) != mark
    }
    gone = sorted(before.keys() - now.keys())
    return {"changed": changed, "gone": gone} if changed or gone else {}


async def events(watch: Watch, ending: anyio.Event) -> AsyncIterator[ServerSentEvent]:
    """One event with everything, then one whenever something has changed, until the server ends."""
    marks = await anyio.to_thread.run_sync(watch.look)
    number = 0
    found: dict[str, Any] = changes({}, marks) or {"changed": {}, "gone": []}
    while not ending.is_set():
        if found:
            yield ServerSentEvent(json.dumps(found), event="runs", id=str(number), retry=RETRY_MS)
            number += 1
        with anyio.move_on_after(EVERY_S):
            await ending.wait()
        before, marks = marks, await anyio.to_thread.run_sync(watch.look)
        found = changes(before, marks)


def respond(watch: Watch) -> EventSourceResponse:
    ending = anyio.Event()
    return EventSourceResponse(
        events(watch, ending),
        headers={"cache-control": "no-store"},
        shutdown_event=ending,
        shutdown_grace_period=ENDING_S,
    )
