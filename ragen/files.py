"""Files that people, other programs and full disks may have broken: an error names the file and says what to do."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ragen.errors import ConfigError, FileError, RagenError

T = TypeVar("T")
LONGEST_TEXT = 300
"""Characters of a library's message that are shown."""
DEEPEST = 2000
"""Levels of a YAML file that the C library is trusted with; brackets and the length of lines bound them."""
LONGEST_HEADER = 10**8
"""Bytes of a safetensors header; the format allows no more."""
MIN_FREE_BYTES = 50 * 10**6
"""A run writes its configuration, metrics and episodes at least."""


def read_text(path: Path) -> str:
    """A text file as UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        what = "holds no " + path.name if path.parent.is_dir() else "does not exist"
        raise FileError(f"{path.parent} {what}. Give the folder of a run.") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text (byte {error.start} is not UTF-8). Was it cut or overwritten?") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    return _mapping(path, _parsed(path, json.loads, "JSON"), "a JSON object")


def read_yaml(path: Path, part: Callable[[str], str] | None = None) -> dict[str, Any]:
    """A YAML file that holds a mapping; of its text only the `part` that a function picks, where one is given."""
    import yaml

    def load(text: str) -> Any:
        text = part(text) if part else text
        # Eight times as fast, where yaml was built with it; texts that are nested too deeply crash it.
        longest = max(map(len, text.splitlines()), default=0)
        is_shallow = text.count("[") + text.count("{") < DEEPEST and longest < DEEPEST
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if is_shallow else yaml.SafeLoader
        return yaml.load(text, Loader=loader)

    return _mapping(path, _parsed(path, load, "YAML", yaml.YAMLError), "a mapping of keys")


def _parsed(path: Path, parse: Callable[[str], Any], kind: str, error_type: type[Exception] = ValueError) -> Any:
    text = read_text(path)
    try:
        return parse(text)
    except (error_type, ValueError, RecursionError) as error:
        raise FileError(f"{path} is not {kind}: {in_one_line(error)}. Was it cut, edited or overwritten?") from error


def _mapping(path: Path, content: Any, expected: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise FileError(f"{path}: expected {expected}, got {type(content).__name__}. Was it cut or overwritten?")
    return content


def readable(read: Callable[[], T], otherwise: T, *, also: tuple[type[Exception], ...] = ()) -> T:
    """What a file holds, or something else where it is missing or damaged; `also`: what else reading may raise then."""
    try:
        return read()
    except (RagenError, *also):
        return otherwise


def stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does; None where it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def value_at(tree: Any, key: str, source: Path) -> Any:
    """The value of a dotted key in the content of a file: ("a.b") -> tree["a"]["b"]."""
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            raise FileError(f"{source} has no key {key}. Was it written by something else?")
        tree = tree[name]
    return tree


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON object, for people to read."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


def finite(content: Any) -> Any:
    """NaN and infinity become null, which JSON knows: [1.0, nan] -> [1.0, None]"""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    return [finite(value) for value in content] if isinstance(content, list | tuple) else content


def number(value: Any) -> float | None:
    """A finite number as it is; None in place of anything else that a file may hold."""
    return finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file, as its header tells it."""

    dtype: str
    shape: tuple[int, ...]


def read_tensor_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name; a file that is cut short or something else is an error.

    The file is eight bytes with the length of a JSON header, the header, and the numbers.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, LONGEST_HEADER):
                raise FileError(f"{path} is not a safetensors file, or was cut short ({size:,} bytes). Copy it again.")
            header = json.loads(file.read(length))
        tensors = {
            name: StoredTensor(dtype=str(entry["dtype"]), shape=tuple(map(int, entry["shape"])))
            for name, entry in header.items()
            if name != "__metadata__"
        }
        end = max((int(entry["data_offsets"][1]) for name, entry in header.items() if name in tensors), default=0)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{path} is not a safetensors file: its header cannot be read. Copy it again.") from error
    if 8 + length + end != size:
        raise FileError(
            f"{path} was cut short or changed: {size:,} bytes instead of {8 + length + end:,}. Copy it again."
        )
    return tensors


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of what is done within name the file: the system leaves its name out when the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_writable(folder: Path, key: str, *, num_bytes: int = 0, purpose: str = "one checkpoint with its log") -> None:
    """Refuse a folder that cannot be made, cannot be written to, or lies on a disk without `num_bytes` left for its
    `purpose`.

    Nothing is created: the nearest folder that exists is asked.
    """
    if "\0" in str(folder):
        raise ConfigError(f"{key} holds a zero byte. Give another folder.")
    existing = folder.absolute()
    while not os.path.lexists(existing):  # False also where the path is too long, or cannot be looked at
        if len(os.fsencode(existing.name)) > os.pathconf("/", "PC_NAME_MAX"):
            raise ConfigError(f"{key}: the name {existing.name[:40]}... is too long for a folder. Give a shorter one.")
        existing = existing.parent
    if not existing.is_dir():
        what = "a file" if existing.exists() else "a link to what does not exist"
        raise ConfigError(f"{key}={folder}: {existing} is {what}. Give another folder, or move it away.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{key}={folder}: {existing} is not writable. Give another folder, or change its permissions."
        )
    free, needed = shutil.disk_usage(existing).free, max(num_bytes, MIN_FREE_BYTES)
    if free < needed:
        raise ConfigError(
            f"{key}={folder}: {free / 1e6:,.0f} MB are free there, and {purpose} needs about "
            f"{needed / 1e6:,.0f} MB. Free some space, or give another folder."
        )


def in_one_line(error: Exception) -> str:
    """What a parser or another library said."""
    return " ".join(str(error).split())[:LONGEST_TEXT] or type(error).__name__
