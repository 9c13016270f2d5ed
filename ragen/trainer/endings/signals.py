"""What ends a run from outside: Ctrl-C, SIGTERM and SIGHUP.

The first signal raises Interrupted where the run stands; inside `held()` it waits, so that an update or a checkpoint is
done or not begun. A second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from ragen.errors import Interrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

REPEAT_S = 1.0
"""A signal so soon after the first is the same one: `timeout` and batch systems signal a process and its group."""


class Signals:
    """Handles the signals while it is entered. Outside the main thread it does nothing."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._depth = 0
        self._pending: Interrupted | None = None
        self._came_at: float | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in ENDING:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # nohup, and SIGINT below a shell's `&`
                self._before[number] = before
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, before = self._before.popitem()
            # Otherwise Ray, which ended meanwhile, has put back an older one.
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before if before is not None else signal.SIG_DFL)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Work that a signal does not cut short; one that came meanwhile counts at the end of it."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._depth == 0 and self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._came_at is not None:
            if now - self._came_at > REPEAT_S:
                _write_message("Ended at once.")
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._came_at = now
        _write_message(f"{signal.Signals(number).name}: ending; a second signal ends the run at once.")
        if self._depth == 0:
            raise Interrupted(number)
        self._pending = Interrupted(number)


def _write_message(text: str) -> None:
    os.write(2, f"{text}\n".encode())  # the signal may have come in the middle of a print
