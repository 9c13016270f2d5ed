"""What every episode of a run was, in a table: tag, group, status, reward, and where its line lies.

The table is a cache in the user's cache folder (XDG_CACHE_HOME), a SQLite file per run; it may be deleted at any time.
A file of episodes is read when it is new or has changed, of each line only the start: numbers and texts come first
there. Reading goes on for a while per request, so that a page can show how far it is.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import sqlite3
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.errors import RagenError
from ragen.files import readable, stamp
from ragen.tracking.episodes import HEADER, STEP_FILE, SUBFIELD, episode_files, episode_name, member_spans
from ragen.view.reading.folders import NotThere

LAYOUT = 1
"""Of the tables; another one is built anew."""
START_BYTES = 4096
"""Of a line: more than the numbers and texts before the first long one take."""
BEFORE = b',"error":'
"""What follows those. Quotes inside texts are escaped, so that this stands in none."""
INDEXING_S = 1.0
"""Seconds per request that are spent on files that are not in the table yet."""
MEMBER, PLAIN, STREAM = "member", "plain", "stream"
"""How a line is reached: a gzip member of its own, bytes of a plain file, or from the start of a foreign gzip file."""

TABLES = (
    "drop table if exists files",
    "drop table if exists episodes",
    "create table files(name text primary key, stamp text, rollout text, step integer, kind text, count integer)",
    """create table episodes(
    file text, "index" integer, tag text, "group" integer, member integer, seed integer, status text, success integer,
    reward real, penalty real, turns integer, actions integer, tokens integer, offset integer, length integer,
    primary key(file, "index")) without rowid""",
)
HEADER_COLUMNS = (
    *("tag", "group", "member", "seed", "status", "success"),
    *("reward", "penalty", "turns", "actions", "tokens"),
)
NAMES = {"group": "group_id", "turns": "num_turns", "actions": "num_actions", "tokens": "num_tokens"}
"""Column -> name in the line, where they differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """Where an episode lies."""

    path: Path
    kind: str
    index: int
    offset: int
    length: int


def cache_folder() -> Path:
    """Below XDG_CACHE_HOME; a folder of its own where that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "ragen" / "view"
    with contextlib.suppress(OSError, RuntimeError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.gettempdir()) / f"ragen-view-{os.getuid()}"


class Index:
    """The table of one run."""

    def __init__(self, run: Path, cache: Path | None = None) -> None:
        self.run = run
        name = hashlib.sha256(os.fsencode(os.path.realpath(run))).hexdigest()[:32]
        self.path = (cache or cache_folder()) / f"{name}.sqlite"
        self._lock = threading.Lock()

    def update(self, seconds: float = INDEXING_S) -> dict[str, int]:
        """Read files that are new or have changed, as far as the time reaches: {"done": 3, "of": 10} files."""
        files = self.files()
        until = time.monotonic() + seconds
        with self._lock, self.connect() as table:
            known = dict(table.execute("select name, stamp from files"))
            for name in known.keys() - files.keys():
                _forget(table, name)
            stale = [name for name, path in files.items() if known.get(name) != str(stamp(path))]
            done = len(files) - len(stale)
            for name in stale:
                if time.monotonic() > until:
                    break
                with contextlib.suppress(OSError):  # gone, or not to be read: the next request tries again
                    _remember(table, name, files[name])
                done += 1
        return {"done": done, "of": len(files)}

    def files(self) -> dict[str, Path]:
        """Name -> file of episodes; steps in their order."""
        return readable(lambda: {episode_name(path): path for path in episode_files(self.run)}, {})

    @contextlib.contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """The table, committed at the end; one that is damaged or of another layout is built anew."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                table = _opened(self.path)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # no SQLite file
                self.path.unlink(missing_ok=True)
                table = _opened(self.path)
            with contextlib.closing(table), table:
                yield table
        except sqlite3.OperationalError as error:
            raise RagenError(f"The cache of episodes, {self.path}, cannot be used: {error}.") from error
        except sqlite3.DatabaseError as error:
            self.path.unlink(missing_ok=True)
            raise RagenError("The cache of episodes was damaged and has been removed. Ask again.") from error

    def select(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self.connect() as table:
            table.row_factory = sqlite3.Row
            return [dict(row) for row in table.execute(sql, values)]

    def line(self, file: str, index: int) -> Line:
        """Where an episode lies; its file is read now if it was not."""
        path = self.files().get(file)
        if path is None:
            raise NotThere("There is no such file of episodes, or not any more.")
        with self._lock, self.connect() as table:
            known = table.execute("select stamp from files where name = ?", [file]).fetchone()
            if known is None or known[0] != str(stamp(path)):
                _remember(table, file, path)
        sql = 'select kind, "index", offset, length from episodes join files on name = file'
        rows = self.select(f'{sql} where file = ? and "index" = ?', [file, index])
        if not rows:
            raise NotThere("There is no such episode, or not any more.")
        return Line(path=path, **rows[0])


def _opened(path: Path) -> sqlite3.Connection:
    table = sqlite3.connect(path, timeout=30)
    try:
        table.execute("pragma synchronous = off")  # what a power cut breaks is built anew
        if _layout(table) != LAYOUT:
            table.execute("begin immediate")  # others may be about to build it, too
            if _layout(table) != LAYOUT:
                for statement in TABLES:
                    table.execute(statement)
                table.execute(f"pragma user_version = {LAYOUT}")
            table.commit()
    except BaseException:
        table.close()
        raise
    return table


def _layout(table: sqlite3.Connection) -> int:
    return table.execute("pragma user_version").fetchone()[0]


def _forget(table: sqlite3.Connection, name: str) -> None:
    table.execute("delete from files where name = ?", [name])
    table.execute("delete from episodes where file = ?", [name])


def _remember(table: sqlite3.Connection, name: str, path: Path) -> None:
    """Put the lines of a file into the table."""
    now = str(stamp(path))  # before reading: what is appended meanwhile is read the next time
    kind, lines = read_headers(path)
    _forget(table, name)
    columns = ", ".join("?" * (len(HEADER_COLUMNS) + 4))
    rows = [
        (name, index, *(_value(header, column) for column in HEADER_COLUMNS), offset, length)
        for index, (offset, length, header) in enumerate(lines)
    ]
    table.executemany(f"insert into episodes values ({columns})", rows)
    found = STEP_FILE.fullmatch(name)
    rollout, step = (found[1], int(found[2])) if found else (name, None)
    table.execute("insert into files values (?, ?, ?, ?, ?, ?)", [name, now, rollout, step, kind, len(rows)])
    table.commit()


def _value(header: Mapping[str, Any], column: str) -> Any:
    """A number or text that SQLite holds."""
    value = header.get(NAMES.get(column, column))
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value if isinstance(value, float) else None


# --- reading --------------------------------------------------------------------------------------------------------

Found = tuple[int, int, dict[str, Any]]
"""Offset, length and header of a line."""


def read_headers(path: Path) -> tuple[str, list[Found]]:
    """How the lines of a file are reached, and each of them; what is cut short or damaged ends the list."""
    if not path.name.endswith(".gz"):
        return PLAIN, list(_plain(path))
    with path.open("rb") as file:
        start = file.read(HEADER.size)
    if len(start) == HEADER.size and HEADER.unpack(start)[5] == SUBFIELD:
        return MEMBER, list(_members(path))
    return STREAM, list(_streamed(path))


def _members(path: Path) -> Iterator[Found]:
    with path.open("rb") as file:
        for span in readable(lambda: member_spans(path), []):  # none where it is damaged further down
            file.seek(span[0] + HEADER.size)
            compressed = file.read(min(span[1] - HEADER.size, START_BYTES))
            try:
                line = zlib.decompressobj(-zlib.MAX_WBITS).decompress(compressed, START_BYTES)
                header = header_of(line)
            except zlib.error:
                return
            if header is None:
                header = full_header(read_line(Line(path=path, kind=MEMBER, index=0, offset=span[0], length=span[1])))
            yield span[0], span[1], header


def _plain(path: Path) -> Iterator[Found]:
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield offset, len(line), header_of(line[:START_BYTES]) or full_header(line)
            offset += len(line)


def _streamed(path: Path) -> Iterator[Found]:
    with contextlib.suppress(EOFError, OSError, zlib.error), gzip.open(path) as file:
        for line in file:
            yield 0, len(line), header_of(line[:START_BYTES]) or full_header(line)


def header_of(start: bytes) -> dict[str, Any] | None:
    """The numbers and texts at the start of a line; None where they do not stand there.

    b'{"tag":"A","reward":1.0,"error":"","messages":[...' -> {"tag": "A", "reward": 1.0}
    """
    head, found, _ = start.partition(BEFORE)
    header = readable(lambda: json.loads(head + b"}"), None, also=(ValueError,)) if found else None
    return header if isinstance(header, dict) and "status" in header else None


def full_header(line: bytes) -> dict[str, Any]:
    """From the whole line, as older versions wrote it; empty where it is no episode."""
    record = readable(lambda: json.loads(line), None, also=(ValueError, RecursionError))
    return record if isinstance(record, dict) else {}


def read_line(line: Line) -> bytes:
    """One line of a file of episodes."""
    try:
        if line.kind == STREAM:
            with gzip.open(line.path) as lines:
                return next(content for number, content in enumerate(lines) if number == line.index)
        with line.path.open("rb") as file:
            file.seek(line.offset)
            content = file.read(line.length)
        return gzip.decompress(content) if line.kind == MEMBER else content
    except (OSError, EOFError, zlib.error, StopIteration) as error:
        raise NotThere("This episode cannot be read: its file is gone, damaged or was replaced.") from error
