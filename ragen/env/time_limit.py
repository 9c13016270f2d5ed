"""A time limit for a check of an environment, which names the call that does not return.

Python cannot end a call that hangs. The check runs on a thread of its own; the thread that waits for it looks at its
stack now and then, and gives it up once it finds the same call into an environment there for too long.

Tested in tests/env/test_checker.py.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType
from typing import TypeVar

from ragen.env import boundary
from ragen.env.boundary import EnvFault, origin

T = TypeVar("T")

POLL_S = 0.25
"""Time between two looks at the stack."""


def within(limit_s: float | None, check: Callable[[], T], *, border: str) -> T:
    """What `check` returns. EnvFault where a call that the module file `border` (or the boundary) makes into an
    environment takes longer than `limit_s`; None has no limit, and then this thread makes the calls."""
    if limit_s is None:
        return check()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(check())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="env-check", daemon=True)
    thread.start()
    call, since = None, time.monotonic()
    while not wait([future], min(POLL_S, limit_s / 4)).done:
        found = called(thread.ident, (border, boundary.__file__))
        if found is None or found is not call:
            call, since = found, time.monotonic()
        elif time.monotonic() - since > limit_s:
            where = origin(innermost(thread.ident) or found)
            # Ends a loop in Python; a call that waits inside C code continues, on a daemon thread.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            raise EnvFault(f"{found.f_code.co_name} did not return within {limit_s:g} s{where}.")
    return future.result()


def innermost(ident: int | None) -> FrameType | None:
    """What a thread is doing at this moment."""
    return sys._current_frames().get(ident or 0)


def called(ident: int | None, border: tuple[str, ...]) -> FrameType | None:
    """The call across the border that a thread is in: the outermost frame behind the last one of these files."""
    frame, call = innermost(ident), None
    while frame is not None and frame.f_code.co_filename not in border:
        frame, call = frame.f_back, frame
    return call if frame is not None else None
