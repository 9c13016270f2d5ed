"""Reads a local W&B run: the .wandb file of a folder wandb/offline-run-<time>-<id>, and the tables beside it.

The file is LevelDB's log format (github.com/google/leveldb, doc/log_format.md) behind a header of seven bytes: blocks
of 32 KiB hold chunks of checksum, length and kind, and a record is one chunk or several. Each record is a protobuf
message that the wandb package defines.
"""

from __future__ import annotations

import json
import logging
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ragen.errors import RagenError, needing_extra
from ragen.files import read_object
from ragen.plotting.history import History, wandb_history

logger = logging.getLogger(__name__)

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
"""Name, magic number, version of the format."""
BLOCK = 32 * 1024
CHUNK = struct.Struct("<IHB")
"""Checksum, length of the data, kind."""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def find_log(path: Path) -> Path:
    """The .wandb file that a path names or a W&B run folder holds."""
    logs = [path] if path.suffix == ".wandb" else sorted(path.glob("*.wandb"))
    if len(logs) == 1:
        return logs[0]
    raise RagenError(
        f"{path} holds {'several' if logs else 'neither metrics.jsonl nor'} *.wandb files. "
        "Give a run directory or a W&B run folder (wandb/offline-run-...)."
    )


def read_records(data: bytes) -> Iterator[bytes]:
    """The records of a W&B log, up to the first one that was cut short or damaged, as a killed run leaves it."""
    position = len(HEADER)
    parts: list[bytes] = []
    while position + CHUNK.size <= len(data):
        left_in_block = BLOCK - position % BLOCK
        if left_in_block < CHUNK.size:  # too short for a chunk: filled with zeros
            position += left_in_block
            continue
        checksum, length, kind = CHUNK.unpack_from(data, position)
        position += CHUNK.size
        chunk = data[position : position + length]
        position += length
        is_sound = len(chunk) == length and zlib.crc32(chunk, zlib.crc32(bytes([kind]))) == checksum
        if not is_sound or (kind in (FULL, FIRST)) == bool(parts) or kind not in (FULL, FIRST, MIDDLE, LAST):
            logger.warning("The W&B log ends in an incomplete record at byte %d; what is before it is used.", position)
            return
        parts.append(chunk)
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


def read_wandb_folder(log: Path) -> History:
    """The history of a local W&B run by its .wandb file."""
    with needing_extra("wandb", "Reading W&B files needs wandb"):
        from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # made at run time

    data = log.read_bytes()
    if not data.startswith(HEADER):
        raise RagenError(f"{log} is not a W&B log of version 0 (it begins with {data[:7]!r}).")
    name = run_id = ""
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for record in map(Record.FromString, read_records(data)):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name, run_id = record.run.display_name, record.run.run_id
        elif kind == "history":
            rows.append(nested(record.history.item))
        elif kind == "summary":
            summary |= nested(record.summary.update)

    def read_file(path: str) -> dict[str, Any] | None:
        file = log.parent / "files" / path
        return read_object(file) if file.is_file() else None

    return wandb_history(name, run_id, rows, summary, read_file)


def nested(items: Iterable[Any]) -> dict[str, Any]:
    """Protobuf items as a dictionary: nested_key [table, path] -> {table: {path: ...}}"""
    row: dict[str, Any] = {}
    for item in items:
        *outer, last = item.nested_key or [item.key]
        target = row
        for key in outer:
            target = target.setdefault(key, {})
        target[last] = json.loads(item.value_json)
    return row
