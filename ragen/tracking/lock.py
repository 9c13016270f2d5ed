"""One writer per run directory: an OS lock that ends with the process that holds it. Readers and ranks take none.

    with RunLock(run_dir):      # RunInUse, with the holder's name, when another process has it
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
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self

from ragen.errors import ConfigError, RagenError

LOCK = "lock.json"

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What file systems without locks answer."""


class RunInUse(RagenError):
    """Another process writes into the run directory."""


class RunLock:
    """Holds a run directory for this process, which may take it several times."""

    _held: ClassVar[dict[Path, tuple[int, int]]] = {}
    """Folder -> file descriptor and how often it was taken."""
    _has_warned: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._is_held = False

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """Take the folder or raise RunInUse; nothing but the lock's own file is touched."""
        handle, count = self._held.get(self.folder) or (self._open(), 0)
        self._held[self.folder] = handle, count + 1
        self._is_held = True

    def release(self) -> None:
        """Give the folder back; a second call does nothing."""
        if not self._is_held:
            return
        self._is_held = False
        handle, count = self._held.pop(self.folder)
        if count > 1:
            self._held[self.folder] = handle, count - 1
        else:
            os.close(handle)

    def _open(self) -> int:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"{self.folder} cannot be written ({error.strerror}). Give the run another trainer.default_local_dir."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(handle)
                raise RunInUse(
                    f"{self.folder} is in use: {self._holder()}. Wait for that process or end it, or give this run "
                    "a folder of its own (trainer.experiment_name, trainer.default_local_dir)."
                ) from error
            if error.errno not in UNSUPPORTED:
                os.close(handle)
                raise
            self._warn(error)
        record = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, (json.dumps(record) + "\n").encode(), 0)
        return handle

    def _holder(self) -> str:
        try:
            record = json.loads((self.folder / LOCK).read_text())
            return f"process {record['pid']} on {record['host']} writes into it since {record['since']}"
        except (OSError, ValueError, KeyError, TypeError):  # it has just been taken
            return "another process writes into it"

    def _warn(self, error: OSError) -> None:
        if not RunLock._has_warned:
            RunLock._has_warned = True
            print(
                f"warning: the file system of {self.folder} has no locks ({error.strerror}): nothing keeps a second "
                "process out of the run directory.",
                file=sys.stderr,
                flush=True,
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
