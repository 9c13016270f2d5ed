"""metrics.jsonl as columns, from a byte offset on, so that a page asks only for what is new.

A line that is half written waits until it is whole. A file that shrank or was replaced (a run that resumes drops what
its checkpoint does not know) is sent from its start, with `reset`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragen.errors import RagenError
from ragen.files import number, readable

METRICS = "metrics.jsonl"
LONGEST_READ = 16 * 2**20
"""Bytes that are read at once: a page asks again for the rest, and the server stays small."""


@dataclass(kw_only=True, slots=True)
class Block:
    """The whole lines of a file after an offset."""

    content: bytes
    """They and their ends."""
    offset: int
    """Where the next line begins."""
    version: str
    """Which file it was; another one makes offsets worthless."""
    is_reset: bool
    """The lines begin at the start of the file, although another offset was asked for."""
    has_more: bool = False
    """The file went on when reading stopped."""

    @property
    def lines(self) -> list[bytes]:
        return self.content.splitlines()


def read_block(path: Path, offset: int = 0, version: str = "") -> Block:
    """Whole lines from `offset` on; from the start where the file is not the one of `version`, or has shrunk."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return Block(content=b"", offset=0, version="", is_reset=offset > 0)
    except OSError as error:
        raise RagenError(f"{path.name} cannot be read: {error.strerror}.") from error
    with file:
        stat = os.fstat(file.fileno())
        now = f"{stat.st_dev:x}-{stat.st_ino:x}"
        is_reset = offset > 0 and (offset > stat.st_size or (version not in ("", now)))
        start = 0 if is_reset else offset
        if start:
            file.seek(start - 1)
            if file.read(1) != b"\n":  # replaced by one of other lines
                is_reset, start = True, 0
                file.seek(0)
        content = file.read(min(LONGEST_READ, stat.st_size - start))
        end = content.rfind(b"\n") + 1
        if not end and len(content) == LONGEST_READ:  # one line that is longer
            content += file.read()
            end = content.rfind(b"\n") + 1
    return Block(
        content=content if end == len(content) else content[:end],
        offset=start + end,
        version=now,
        is_reset=is_reset,
        has_more=start + len(content) < stat.st_size and end > 0,
    )


def rows_of(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """The metrics of steps. What is no such line is left out: the page shows what it can."""
    for line in lines:
        row = readable(partial(json.loads, line), None, also=(ValueError, RecursionError))
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def read_series(run: Path, offset: int = 0, version: str = "") -> dict[str, Any]:
    """The rows after an offset as columns, in the form of the API; None where a step has no such metric."""
    found = read_block(run / METRICS, offset, version)
    rows = list(rows_of(found.lines))
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return {
        "offset": found.offset,
        "version": found.version,
        "reset": found.is_reset,
        "more": found.has_more,
        "steps": [row["step"] for row in rows],
        "columns": {name: [number(row.get(name)) for row in rows] for name in names},
    }
