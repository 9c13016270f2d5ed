"""Processes that tests start, and what is below them."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

STARTED: list[subprocess.Popen[str]] = []


def processes(of: int) -> dict[int, str]:
    """Living descendants of a process, and their command lines."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (OSError, ValueError):
            continue
        if state != "Z":
            parents[int(folder.name)], names[int(folder.name)] = int(parent), name
    found = {of}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return {pid: names[pid] for pid in found - {of} if pid in names}


def end_started() -> None:
    """Kill what a test left running when it failed: a training without end, or a cluster, slows down all later ones."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is not None:
            continue
        for pid in (process.pid, *processes(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
