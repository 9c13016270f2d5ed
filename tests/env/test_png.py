"""PNG files hold the picture that was written, read back by a decoder made of zlib alone."""

import struct
import zlib

import numpy as np
import pytest

from ragen.env import make_env
from ragen.env.png import encode_png


def decode_png(data: bytes) -> np.ndarray:
    """RGB pixels of a PNG whose rows are not filtered."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, offset = {}, 8
    while offset < len(data):
        (length,) = struct.unpack(">I", data[offset : offset + 4])
        kind, body = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + length]
        (checksum,) = struct.unpack(">I", data[offset + 8 + length : offset + 12 + length])
        assert checksum == zlib.crc32(kind + body)
        chunks[kind] = body
        offset += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour, rest) == (8, 2, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_a_small_picture_survives_the_round_trip():
    picture = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    assert (decode_png(encode_png(picture)) == picture).all()


@pytest.mark.parametrize("env_type, side", [("sokoban", 96), ("frozen_lake", 64)])
def test_the_boards_can_be_written(env_type: str, side: int):
    env = make_env(env_type)
    env.reset(0)
    picture = env.render_rgb()
    assert picture is not None and picture.shape == (side, side, 3)
    assert (decode_png(encode_png(picture)) == picture).all()


@pytest.mark.parametrize(
    "shape, dtype", [((2, 2), np.uint8), ((2, 2, 4), np.uint8), ((2, 2, 3), float), ((0, 2, 3), np.uint8)]
)
def test_what_is_no_rgb_picture_is_refused(shape: tuple[int, ...], dtype: type):
    with pytest.raises(ValueError, match="uint8 picture"):
        encode_png(np.zeros(shape, dtype))
