"""Reading GGUF, llama.cpp's file format: a header of named facts and tensors, then their numbers. It holds no code.

Large files come in pieces, of two kinds: cut at any byte, to be joined again, or split by llama.cpp into files of
their own (`name-00001-of-00003.gguf`), each with a header and whole tensors. Both are read where they lie.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.errors import ConfigError, FileError, needing_extra

if TYPE_CHECKING:
    from numpy import ndarray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Numbers of a header by their type, as `struct` writes them."""
STRING, ARRAY = 8, 9
PLAIN_KINDS = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2)}
"""Name, numbers per block and bytes per block, as `format_of` gives them; the other kinds are quantized."""
F32, F16, BF16 = PLAIN_KINDS
LARGEST_COUNT = 10**8
"""Entries of a header; a damaged one asks for more."""
READ_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufTensor:
    """One tensor of a file."""

    pieces: tuple[Path, ...]
    """Where the bytes of the file lie."""
    shape: tuple[int, ...]
    """As torch writes it; the file has the innermost first."""
    kind: int
    """llama.cpp's number of the format of its numbers."""
    start: int
    """Its first byte in the file."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Gguf:
    """The header of one file, whose bytes may lie in several pieces; or of several: facts of the first, all tensors."""

    paths: list[Path]
    """All pieces in order."""
    facts: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def name(self) -> str:
        """The first file, for messages."""
        return str(self.paths[0])

    def read(self, name: str, *, every: int = 1) -> ndarray:
        """A tensor in float32; with `every`, only each so many-th row of it."""
        tensor = self.tensors[name]
        with Joined(tensor.pieces).buffered() as file:
            file.seek(tensor.start)
            content = _exactly(file, tensor.num_bytes)
        return numbers(content, tensor, every=every)


def open_gguf(files: Sequence[Path]) -> Gguf:
    """The model in one file or in pieces: cut ones in the order given, split ones in any."""
    paths = with_siblings(files)
    for path in paths:
        if not path.is_file():
            raise FileError(f"{path} is {'a folder' if path.is_dir() else 'missing'}. Give the GGUF file.")
    are_split = len(paths) > 1 and all(_starts_as_gguf(path) for path in paths)
    parts = [(path,) for path in paths] if are_split else [tuple(paths)]
    found = [read_header(part) for part in parts]
    found.sort(key=lambda file: file.facts.get("split.no", -1))
    check_split(found)
    tensors = {name: tensor for file in found for name, tensor in file.tensors.items()}
    stated = found[0].facts.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise FileError(f"{paths[0]} speaks of {stated} tensors, and its parts hold {len(tensors)}. Copy them again.")
    return Gguf(paths=[path for file in found for path in file.paths], facts=found[0].facts, tensors=tensors)


def with_siblings(files: Sequence[Path]) -> list[Path]:
    """The files given; one part of a split model stands for all of them, which lie beside it."""
    if len(files) != 1 or not (match := SPLIT_NAME.fullmatch(files[0].name)):
        return list(files)
    count = int(match["count"])
    return [files[0].with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]


def check_split(files: Sequence[Gguf]) -> None:
    """Refuse a split model of which parts are missing, doubled or of another one."""
    stated = files[0].facts.get("split.count", 1)
    numbers = [file.facts.get("split.no", 0) for file in files]
    if stated != len(files) or numbers != list(range(len(files))):
        raise ConfigError(
            f"{files[0].name} is split into {stated} parts, and these are given: "
            f"{', '.join(str(number + 1) for number in numbers)}. "
            "Give all of them, or the first with the others beside it."
        )


def read_header(pieces: tuple[Path, ...]) -> Gguf:
    """Facts and tensors of a file; one that is cut short or something else is an error."""
    name, size = pieces[0], sum(piece.stat().st_size for piece in pieces)
    with Joined(pieces).buffered() as file:
        if file.read(4) != MAGIC:
            raise FileError(f"{name} is not a GGUF file: it does not start with {MAGIC.decode()}.")
        try:
            version, num_tensors, num_facts = struct.unpack("<IQQ", _exactly(file, 20))
            if version not in VERSIONS:
                raise FileError(f"{name} is GGUF version {version}. Supported: 2 and 3.")
            facts = {_string(file): _value(file, _scalar(file, "I")) for _ in range(_count(num_facts))}
            described = [_tensor_line(file) for _ in range(_count(num_tensors))]
            alignment = facts.get("general.alignment", 32)
            begin = math.ceil(file.tell() / alignment) * alignment
            tensors = {key: _tensor(shape, kind, begin + offset, pieces) for key, shape, kind, offset in described}
        except (EOFError, ValueError, KeyError, TypeError, struct.error, ZeroDivisionError, OverflowError) as error:
            raise FileError(f"{name} is damaged: its header cannot be read ({error}). Copy it again.") from error
    end = max((tensor.start + tensor.num_bytes for tensor in tensors.values()), default=0)
    if end > size:
        whole = "its pieces together have" if len(pieces) > 1 else "it has"
        raise FileError(
            f"{name} was cut short: {whole} {size:,} bytes, its header speaks of {end:,}. Copy it again, or give all "
            "of its pieces in order."
        )
    return Gguf(paths=list(pieces), facts=facts, tensors=tensors)


def sha256_of(paths: Sequence[Path]) -> str:
    """The hash of the files, one after the other."""
    with Joined(paths).buffered() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def numbers(content: bytes, tensor: GgufTensor, *, every: int = 1) -> ndarray:
    """The bytes of a tensor as float32."""
    import numpy as np

    if tensor.kind in PLAIN_KINDS:
        dtype = {F32: "<f4", F16: "<f2", BF16: "<u2"}[tensor.kind]
        raw = np.frombuffer(content, dtype).reshape(tensor.shape)[::every]
        # A bfloat16 is the upper half of a float32.
        return (raw.astype("<u4") << 16).view("<f4") if tensor.kind == BF16 else raw.astype("<f4")
    from gguf import GGMLQuantizationType, dequantize

    rows = np.frombuffer(content, "u1").reshape(*tensor.shape[:-1], -1)[::every]
    with np.errstate(all="ignore"):  # NaN and infinity in a damaged file are answered by who asks for its weights
        return dequantize(np.ascontiguousarray(rows), GGMLQuantizationType(tensor.kind))


class Joined(io.RawIOBase):
    """Files read as one, one after the other."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [path.open("rb") for path in paths]
        self._sizes = [path.stat().st_size for path in paths]
        self._at = 0

    def buffered(self) -> io.BufferedReader:
        return io.BufferedReader(self, READ_BYTES)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: sum(self._sizes)}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        at = self._at
        for file, size in zip(self._files, self._sizes, strict=True):
            if at < size:
                file.seek(at)
                num_read = file.readinto(memoryview(buffer)[: size - at])
                self._at += num_read
                return num_read
            at -= size
        return 0

    def close(self) -> None:
        for file in self._files:
            file.close()
        super().close()


def _starts_as_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def _exactly(file: io.BufferedReader, size: int) -> bytes:
    content = file.read(size)
    if len(content) != size:
        raise EOFError("it ends too early")
    return content


def _scalar(file: io.BufferedReader, kind: str) -> Any:
    return struct.unpack(f"<{kind}", _exactly(file, struct.calcsize(f"<{kind}")))[0]


def _count(count: int) -> int:
    if count > LARGEST_COUNT:
        raise ValueError(f"a count of {count}")
    return count


def _string(file: io.BufferedReader) -> str:
    return _exactly(file, _count(_scalar(file, "Q"))).decode("utf-8", "replace")


def _value(file: io.BufferedReader, kind: int) -> Any:
    if kind == STRING:
        return _string(file)
    if kind != ARRAY:
        return _scalar(file, SCALARS[kind])
    inner, count = _scalar(file, "I"), _count(_scalar(file, "Q"))
    if inner == ARRAY:
        raise ValueError("an array of arrays")
    if inner == STRING:
        return [_string(file) for _ in range(count)]
    packed = f"<{count}{SCALARS[inner]}"
    return list(struct.unpack(packed, _exactly(file, struct.calcsize(packed))))


def _tensor_line(file: io.BufferedReader) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, kind and offset of a tensor."""
    name, num_dims = _string(file), _scalar(file, "I")
    if num_dims > 4:
        raise ValueError(f"a tensor of {num_dims} dimensions")
    shape = tuple(_count(_scalar(file, "Q")) for _ in range(num_dims))[::-1]
    return name, shape, _scalar(file, "I"), _scalar(file, "Q")


def _tensor(shape: tuple[int, ...], kind: int, start: int, pieces: tuple[Path, ...]) -> GgufTensor:
    _, block_size, block_bytes = format_of(kind, pieces[0])
    if not shape or shape[-1] % block_size:
        raise ValueError(f"a tensor of {shape} in blocks of {block_size}")
    num_bytes = math.prod(shape) // block_size * block_bytes
    return GgufTensor(pieces=pieces, shape=shape, kind=kind, start=start, num_bytes=num_bytes)


def format_of(kind: int, file: Path) -> tuple[str, int, int]:
    """llama.cpp's name of a format of the file (Q4_K), and its numbers and bytes per block."""
    if kind in PLAIN_KINDS:
        return PLAIN_KINDS[kind]
    with needing_extra("models", f"{file} holds quantized weights, which the `gguf` package reads"):
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    quantization = GGMLQuantizationType(kind)
    block_size, block_bytes = GGML_QUANT_SIZES[quantization]
    return quantization.name, block_size, block_bytes
