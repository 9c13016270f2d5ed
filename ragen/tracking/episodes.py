"""Episode files: one JSON object per line and episode, compressed line by line.

A run writes `<name>.jsonl.gz`, a gzip member for each line. `gzip.open`, pandas and `zcat` read it whole. Every member
says its own length in its header, so that a reader hops from line to line without decompressing any (`member_spans`).
Within an object numbers and texts come before lists, so that the start of a line tells what the episode was.

Plain `<name>.jsonl` is read alike: folders of older runs hold it, and `trainer.rollout_data_dir` does.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ragen.errors import RagenError
from ragen.types import Episode, Status, Turn

logger = logging.getLogger(__name__)

COMPRESSED, PLAIN = ".jsonl.gz", ".jsonl"
SUFFIXES = (COMPRESSED, PLAIN)
STEP_FILE = re.compile(r"(train|val)_step_(\d+)")
"""What the files of a training are called, without their end."""
LEVEL = 4
"""Of compression; 6 takes twice as long for two per cent."""

# A gzip header (RFC 1952): magic, deflate, flag "extra field", no time, no hints, unknown system; the extra field of
# eight bytes is one subfield "RA" of four bytes, the length of the whole member.
HEADER = struct.Struct("<4sIBBH2sHI")
START, SUBFIELD = b"\x1f\x8b\x08\x04", b"RA"
TRAILER = struct.Struct("<II")
"""CRC-32 and length of the line."""


TURN_FIELDS = tuple(each.name for each in dataclasses.fields(Turn) if each.name not in ("user", "role", "text"))
"""Of a turn, those that do not stand in the messages."""


class Span(NamedTuple):
    """Where a member lies in its file."""

    offset: int
    length: int


def dumps(record: Any) -> str:
    """A record as one line of JSON."""
    # Models may write lone surrogates; as escapes they survive any text file.
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=True)


# --- episodes as records --------------------------------------------------------------------------------------------


def summary_of(episode: Episode) -> dict[str, Any]:
    """What a table of episodes shows of one."""
    return {
        "tag": episode.tag,
        "env_type": episode.env_type,
        "group_id": episode.group_id,
        "member": episode.member,
        "seed": episode.seed,
        "level": episode.level,
        "status": episode.status.value,
        "success": episode.is_success,
        "reward": episode.reward,
        "penalty": episode.penalty,
        "num_actions": episode.num_actions,
        "num_turns": len(episode.turns),
        "num_tokens": sum(len(turn.response_ids) for turn in episode.turns),
        "error": episode.error,
    }


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON: the conversation in OpenAI's message form, then what training needs of each turn."""
    return summary_of(episode) | {
        "final_observation": episode.final_observation,
        "messages": episode.messages(),
        "turns": [_turn_to_json(turn) for turn in episode.turns],
    }


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    """Numbers and texts before lists; the messages hold the texts of the exchange already.

    The lists are those of the turn: `dataclasses.asdict` copies every number, which takes longer than all the rest.
    """
    fields = {name: getattr(turn, name) for name in TURN_FIELDS}
    return dict(sorted(fields.items(), key=lambda item: isinstance(item[1], list | dict)))


def episode_from_json(record: Mapping[str, Any]) -> Episode:
    """The inverse of `episode_to_json`."""
    system, *exchanges = record["messages"]
    turns = [
        Turn(user=asked["content"], role=asked["role"], text=reply["content"], **turn)
        for asked, reply, turn in zip(exchanges[::2], exchanges[1::2], record["turns"], strict=True)
    ]
    plain = ("tag", "env_type", "group_id", "member", "seed", "error", "final_observation")
    return Episode(
        level=record.get("level", ""),  # files of earlier versions have none
        system=system["content"],
        turns=turns,
        status=Status(record["status"]),
        **{name: record[name] for name in plain},
    )


# --- writing --------------------------------------------------------------------------------------------------------


def episode_lines(episodes: Iterable[Episode]) -> Iterator[bytes]:
    """A line of JSON for each episode."""
    for episode in episodes:
        yield dumps(episode_to_json(episode)).encode() + b"\n"


def pack_member(line: bytes) -> bytes:
    """A line as a gzip member that says its own length."""
    # A window as long as the line: a larger one finds nothing more, and preparing it takes longer than a short line.
    window = min(zlib.MAX_WBITS, max(9, len(line).bit_length()))
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -window, memLevel=min(8, window - 6))
    body = compressor.compress(line) + compressor.flush()
    length = HEADER.size + len(body) + TRAILER.size
    header = HEADER.pack(START, 0, 0, 255, 8, SUBFIELD, 4, length)
    return header + body + TRAILER.pack(zlib.crc32(line), len(line) & 0xFFFFFFFF)


# --- reading --------------------------------------------------------------------------------------------------------


def read_episodes(path: Path) -> Iterator[Episode]:
    """The episodes of a file. One that was cut short, as a full disk or a copy may leave it, ends with a warning."""
    count = 0
    try:
        for line in _lines(path):
            yield _episode(line, path, count)
            count += 1
    except EOFError:
        logger.warning("%s was cut short: %d episodes are whole, the rest is left out.", path, count)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RagenError(f"{path}, after line {count}: not gzip, or damaged ({error})") from error


def _episode(line: bytes, path: Path, count: int) -> Episode:
    """The episode of a line that follows `count` others."""
    try:
        return episode_from_json(json.loads(line))
    except (KeyError, TypeError, ValueError) as error:
        if count and not line.endswith(b"\n"):
            raise EOFError from error
        raise RagenError(f"{path}, line {count + 1}: not an episode ({type(error).__name__}: {error})") from error


def _lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, then an EOFError where the last one was cut."""
    with path.open("rb") as file:
        if not path.name.endswith(".gz"):
            yield from file
        elif file.read(len(START)) == START:
            yield from _member_lines(path)
        else:  # something else has compressed it
            file.seek(0)
            yield from gzip.GzipFile(fileobj=file)


def _member_lines(path: Path) -> Iterator[bytes]:
    """Hop by hop: gzip's own reader takes the first byte of a cut member for damage."""
    end = 0
    with path.open("rb") as file:
        for span in member_spans(path):
            file.seek(span.offset)
            yield gzip.decompress(file.read(span.length))
            end = span.offset + span.length
    if end < path.stat().st_size:
        raise EOFError


def member_spans(path: Path) -> list[Span]:
    """Where each line of a compressed file lies, from the headers alone; a member that is cut short is left out."""
    spans: list[Span] = []
    offset, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while offset + HEADER.size <= size:
            file.seek(offset)
            start, _, _, _, _, subfield, _, length = HEADER.unpack(file.read(HEADER.size))
            if (start, subfield) != (START, SUBFIELD) or length < HEADER.size + TRAILER.size:
                raise RagenError(f"{path}, byte {offset}: no episode of this program begins here.")
            if offset + length > size:
                break
            spans.append(Span(offset, length))
            offset += length
    return spans


# --- files of a run -------------------------------------------------------------------------------------------------


def read_member(path: Path, span: Span) -> Episode:
    """One episode of a compressed file."""
    with path.open("rb") as file:
        file.seek(span.offset)
        return episode_from_json(json.loads(gzip.decompress(file.read(span.length))))


def episode_name(path: Path) -> str:
    """episodes/train_step_3.jsonl.gz -> train_step_3"""
    return next((path.name.removesuffix(end) for end in SUFFIXES if path.name.endswith(end)), path.stem)


def episode_files(path: Path) -> list[Path]:
    """The episode files of a run directory, steps in their order, or the file itself."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise RagenError(f"{path} does not exist. Give a run directory or an episode file.")
    found = {episode_name(file): file for end in reversed(SUFFIXES) for file in (path / "episodes").glob(f"*{end}")}
    if not found:
        raise RagenError(f"{path} holds no episodes/*{COMPRESSED}. Give a run directory or an episode file.")
    return [found[name] for name in sorted(found, key=_natural)]


def _natural(name: str) -> list[tuple[int, str]]:
    """train_step_2 comes before train_step_10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def config_of(path: Path) -> Path:
    """Where the configuration of the run lies that a folder is or an episode file belongs to."""
    return (path if path.is_dir() else path.parent.parent) / "config.yaml"


def find_episodes(run: Path, name: str) -> Path | None:
    """The file of a run's rollout, for example "val_step_20"; None where it was not kept."""
    paths = (run / "episodes" / f"{name}{end}" for end in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)
