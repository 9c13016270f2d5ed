"""A command in a process of its own that cannot outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_S = 60.0
"""Seconds that a run has to end by itself after it was interrupted: it finishes its update and saves."""

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def start_child(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str], is_appended: bool
) -> subprocess.Popen[bytes]:
    """Start a command whose output goes to `log`. Call it from the main thread."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab" if is_appended else "wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment),
            start_new_session=True,  # Ctrl-C in the terminal comes to us alone, and we end the whole group
            preexec_fn=_prepare,
        )


def _prepare() -> None:
    # Below a shell's `&` SIGINT is ignored, in Ray's workers it is blocked, and children inherit both.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if _libc is not None:
        # When this process is killed there is nobody left to end its children; the kernel does.
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stop_children(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt, and kill what does not end by itself: a run that is interrupted still writes its status."""
    for child in children:
        _signal_group(child, signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal_group(child, signal.SIGKILL)
            child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    if child.poll() is None:  # the id of a process that has ended may belong to another one by now
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)  # the leader of a session: its id is the group's
