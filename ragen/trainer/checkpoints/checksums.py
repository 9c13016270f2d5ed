"""Checksums of a checkpoint's files, written with it and compared before it is loaded.

    <checkpoint>/checksums.json   {"actor/model.safetensors": {"size": 1234, "sha256": "..."}, ...}

Checkpoints without that file, of former versions, open as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ragen.errors import ConfigError

CHECKSUMS = "checksums.json"
LARGE = 8 * 2**30
"""Bytes from which on comparing is announced: a core hashes about 1.4 GB a second."""
NUM_THREADS = 8
"""Files hashed and synced side by side; neither holds Python's lock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What a file is known by."""

    path: str
    """Relative to the checkpoint."""
    size: int
    sha256: str


class Settled:
    """Hashes files and syncs them to disk in threads, while others are still being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(NUM_THREADS)
        self._found: dict[Path, tuple[Future[str], Future[None]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, below: Path) -> None:
        """Begin with the files below a folder, which are whole now."""
        for path in sorted(below.rglob("*")):
            if path.is_file() and path not in self._found:
                path.chmod(0o644)
                self._found[path] = self._pool.submit(_sha256, path), self._pool.submit(sync, path)

    def write(self) -> None:
        """Note size and SHA-256 of every file, once everything is on the disk."""
        self.add(self.folder)
        record = {}
        for path, (digest, synced) in sorted(self._found.items()):
            record[str(path.relative_to(self.folder))] = {"size": path.stat().st_size, "sha256": digest.result()}
            synced.result()
        (self.folder / CHECKSUMS).write_text(json.dumps(record, indent=2) + "\n")
        for path in (self.folder / CHECKSUMS, *(path for path in self.folder.rglob("*") if path.is_dir()), self.folder):
            sync(path)


def read_checksums(folder: Path) -> list[Entry]:
    """The files of a checkpoint whose role is still there; rotation removes roles. Empty for old checkpoints."""
    path = folder / CHECKSUMS
    if not path.is_file():
        return []
    try:
        record = json.loads(path.read_text())
        entries = [Entry(path=name, size=int(e["size"]), sha256=str(e["sha256"])) for name, e in record.items()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error!r}).{_way_out(folder)}") from error
    return [entry for entry in entries if (folder / entry.path).parent.is_dir()]


def find_damage(folder: Path, entries: Sequence[Entry], *, is_quick: bool = False) -> str | None:
    """The first file that is not as it was written; `is_quick` looks at the sizes only."""
    paths = [folder / entry.path for entry in entries]
    for entry, path in zip(entries, paths, strict=True):
        if not path.is_file():
            return f"{path} is missing"
        if (size := path.stat().st_size) != entry.size:
            return f"{path} has {size} bytes, {entry.size} were written"
    digests = [entry.sha256 for entry in entries] if is_quick else _hash_all(paths)
    changed = [path for entry, path, digest in zip(entries, paths, digests, strict=True) if digest != entry.sha256]
    return f"{changed[0]} is not what was written (SHA-256)" if changed else None


def verify(folder: Path, *, role: str | None = None, is_quick: bool = False) -> None:
    """Refuse a checkpoint that is not as it was written, and name the newest one before it that is.

    With a role, `actor` or `critic`, only its model counts.
    """
    entries = read_checksums(folder)
    if role is not None:
        entries = [entry for entry in entries if entry.path.startswith(f"{role}/") and "optim" not in entry.path]
    size = sum(entry.size for entry in entries)
    if size > LARGE and not is_quick:
        print(f"Comparing the checksums of {folder}, {size / 2**30:.0f} GiB ...", flush=True)
    if damage := find_damage(folder, entries, is_quick=is_quick):
        raise ConfigError(f"The checkpoint is damaged: {damage}.{_way_out(folder)}")


def _way_out(folder: Path) -> str:
    from ragen.trainer.checkpoints.checkpoint import step_folders, step_of

    for other in step_folders(folder.parent):
        is_before = step_of(other) < step_of(folder) and (other / "actor").is_dir() and (other / CHECKSUMS).is_file()
        if is_before and not find_damage(other, read_checksums(other)):
            return (
                f" The newest whole one before it is {other}: evaluate {other}/actor, or resume from it with "
                f"trainer.resume_mode=resume_path trainer.resume_from_path={other}"
            )
    return " There is no whole one before it; trainer.resume_mode=disable starts over."


def sync(path: Path) -> None:
    """Put a file or the entries of a folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hash_all(paths: Sequence[Path]) -> list[str]:
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(_sha256, paths))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
