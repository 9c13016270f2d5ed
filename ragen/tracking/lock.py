"""One writer per run directory: an OS lock that ends with the process that holds it. Readers and ranks take none.

    with run_lock(run_dir):      # RunInUse, with the holder's name, when another process has it
        ...

The lock is flock(2) on `lock.json` in the folder; the file says who holds it and stays behind.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ragen.errors import ConfigError, RagenError

LOCK = "lock.json"

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What file systems without locks answer."""


TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
PROBE_S = 0.2
"""A reader that asks whether a run is at work has the lock for an instant; that long a second try waits."""


class RunInUse(RagenError):
    """Another process writes into the run directory."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Holds a run directory for this process, which may take it several times; RunInUse where another one has it."""
    folder = folder.absolute()
    handle, count = _held.get(folder) or (_locked(folder), 0)
    _held[folder] = handle, count + 1
    try:
        yield
    finally:
        handle, count = _held.pop(folder)
        if count > 1:
            _held[folder] = handle, count - 1
        else:
            os.close(handle)


_held: dict[Path, tuple[int, int]] = {}
"""Folder -> file descriptor and how often it was taken."""
_without_locks: set[Path] = set()
"""Folders on file systems without locks; the first is warned of."""


def _locked(folder: Path) -> int:
    """The lock's own file, locked; nothing else is touched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror}). Give the run another trainer.default_local_dir."
        ) from error
    try:
        _take(handle)
    except OSError as error:
        if error.errno in TAKEN:
            os.close(handle)
            raise RunInUse(
                f"{folder} is in use: {_holder(folder)}. Wait for that process or end it, or give this run "
                "a folder of its own (trainer.experiment_name, trainer.default_local_dir)."
            ) from error
        if error.errno not in UNSUPPORTED:
            os.close(handle)
            raise
        if not _without_locks:
            print(
                f"warning: the file system of {folder} has no locks ({error.strerror}): nothing keeps a second "
                "process out of the run directory.",
                file=sys.stderr,
                flush=True,
            )
        _without_locks.add(folder)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(handle, 0)
    os.pwrite(handle, (json.dumps(record) + "\n").encode(), 0)
    return handle


def _take(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        time.sleep(PROBE_S)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


KILLED = "its process is gone, without a word about why: it was killed, or the machine went down"


def is_killed(folder: Path, state: str) -> bool:
    """Whether a run whose status.json has that `state` says that it is running, and nobody holds its directory."""
    return state == "running" and is_locked(folder) is False


def is_locked(folder: Path) -> bool | None:
    """Whether a process holds a run directory, for readers: nothing is written. None where that cannot be known."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in TAKEN else None
    finally:
        os.close(handle)
    return False


def _holder(folder: Path) -> str:
    try:
        record = json.loads((folder / LOCK).read_text())
        return f"process {record['pid']} on {record['host']} writes into it since {record['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just been taken
        return "another process writes into it"
