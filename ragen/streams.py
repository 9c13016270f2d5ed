"""Standard output and error whose reader may leave: `ragen show RUN | head`, `python train.py | less`."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

READER_GONE = "The reader of this output is gone. The work continues; what it logs is in the run directory."
GONE = {errno.EPIPE, errno.EIO}
"""Errors of a write whose reader has left: of a pipe, and of a terminal that was closed."""


class LastingStream:
    """A text stream that goes to nowhere once its reader has left, instead of ending the program."""

    def __init__(self, stream: Any, on_loss: Callable[[], None]) -> None:
        self._stream = stream
        self._on_loss = on_loss

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if error.errno not in GONE:
            raise error
        discard(self._stream)
        self._on_loss()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outliving_readers() -> Iterator[None]:
    """Within: whoever reads the output may leave. The other stream says so once, unless nothing is left to be done."""
    before = sys.stdout, sys.stderr
    is_told = False

    def tell() -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            print(READER_GONE, file=sys.stderr, flush=True)

    sys.stdout, sys.stderr = LastingStream(before[0], tell), LastingStream(before[1], tell)  # type: ignore[assignment]
    try:
        yield
    finally:
        is_told = True  # what is printed now is the last
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


@contextmanager
def leaving_with_readers() -> Iterator[None]:
    """Within: a reader who leaves ends the program, also when its last lines are still in the buffer."""
    try:
        yield
    finally:
        sys.stdout.flush()  # argparse leaves its help there


def discard(stream: Any) -> None:
    """Send what a stream still holds, and all that follows, to nowhere. Python would complain at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Streams that were closed before the program began (`ragen ... >&-`, some schedulers) lead to nowhere.

    Python has None for them, on which every print with a flush would fail.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the program runs


def show_everything() -> None:
    """Characters that the terminal's encoding lacks are printed as escapes, not as a UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
