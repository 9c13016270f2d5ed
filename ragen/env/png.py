"""Pictures as PNG files, with nothing but zlib."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def encode_png(picture: np.ndarray) -> bytes:
    """The bytes of a PNG file from uint8 [height, width, 3]."""
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or 0 in picture.shape:
        raise ValueError(f"expected a uint8 picture [height, width, 3], got {picture.dtype} {list(picture.shape)}.")
    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row starts with its filter type, 0 = none
    rows[:, 1:] = picture.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits per channel, colour type 2 = RGB
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    """One section of a PNG file: length, kind, data, checksum of the last two."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
