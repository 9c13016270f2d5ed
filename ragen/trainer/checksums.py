"""Checksums of a checkpoint's files, written with it and compared before it is loaded.

    <checkpoint>/checksums.json   {"actor/model.safetensors": {"size": 1234, "sha256": "..."}, ...}

Checkpoints without that file, of former versions, open as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ragen.errors import ConfigError

CHECKSUMS = "checksums.json"
LARGE = 8 * 2**30
"""Bytes from which on comparing is announced: a core hashes about 1.4 GB a second."""
NUM_THREADS = 8
"""Files hashed side by side; hashing leaves Python's lock alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What a file is known by."""

    path: str
    """Relative to the checkpoint."""
    size: int
    sha256: str


def write_checksums(folder: Path) -> None:
    """Note size and SHA-256 of every file below `folder`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        digests = list(pool.map(_sha256, paths))
    record = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": digest}
        for path, digest in zip(paths, digests, strict=True)
    }
    (folder / CHECKSUMS).write_text(json.dumps(record, indent=2) + "\n")


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


def damaged_files(folder: Path, entries: Iterable[Entry], *, is_quick: bool) -> list[str]:
    """What is wrong with each file that is not as it was written; `is_quick` looks at the sizes only."""
    entries, found = list(entries), []
    for entry in entries:
        path = folder / entry.path
        if not path.is_file():
            found.append(f"{path} is missing")
        elif (size := path.stat().st_size) != entry.size:
            found.append(f"{path} has {size} bytes, {entry.size} were written")
    if found or is_quick:
        return found
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        digests = pool.map(_sha256, [folder / entry.path for entry in entries])
    changed = [entry for entry, digest in zip(entries, digests, strict=True) if digest != entry.sha256]
    return [f"{folder / entry.path} is not what was written (SHA-256)" for entry in changed]


def verify(folder: Path, *, is_quick: bool = False) -> None:
    """Refuse a checkpoint that is not as it was written, and name the newest one before it that is."""
    entries = read_checksums(folder)
    size = sum(entry.size for entry in entries)
    if size > LARGE and not is_quick:
        print(f"Comparing the checksums of {folder}, {size / 2**30:.0f} GiB ...", flush=True)
    if damage := damaged_files(folder, entries, is_quick=is_quick):
        raise ConfigError(f"The checkpoint is damaged: {damage[0]}.{_way_out(folder)}")


def verify_model(folder: Path) -> None:
    """Refuse a role of a checkpoint, RUN/global_step_N/actor, whose files are not as they were written."""
    checkpoint = folder.parent
    entries = [e for e in read_checksums(checkpoint) if e.path.startswith(f"{folder.name}/") and "optim" not in e.path]
    if damage := damaged_files(checkpoint, entries, is_quick=False):
        raise ConfigError(f"The checkpoint is damaged: {damage[0]}.{_way_out(checkpoint)}")


def _way_out(folder: Path) -> str:
    from ragen.trainer.checkpoint import step_folders, step_of

    for other in step_folders(folder.parent):
        is_before = step_of(other) < step_of(folder) and (other / "actor").is_dir() and (other / CHECKSUMS).is_file()
        if is_before and not damaged_files(other, read_checksums(other), is_quick=False):
            return (
                f" The newest whole one before it is {other}: evaluate {other}/actor, or go on from it with "
                f"trainer.resume_mode=resume_path trainer.resume_from_path={other}"
            )
    return " There is no whole one before it; trainer.resume_mode=disable starts over."


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
