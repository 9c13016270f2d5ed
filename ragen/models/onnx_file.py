"""The constants and node names of an ONNX file, read without the onnx package.

ONNX is a protocol buffer, of which four message types are enough here. Field numbers are those of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MODEL_GRAPH, GRAPH_NODE, GRAPH_INITIALIZER, NODE_INPUT, NODE_NAME = 7, 1, 5, 1, 3
TENSOR_DIMS, TENSOR_TYPE, TENSOR_FLOATS, TENSOR_INTS, TENSOR_NAME, TENSOR_RAW = 1, 2, 4, 5, 8, 9
TENSOR_DTYPES = {1: np.dtype("<f4"), 2: np.dtype("u1"), 3: np.dtype("i1"), 6: np.dtype("<i4"), 7: np.dtype("<i8")}


def read_onnx(path: Path) -> tuple[dict[str, np.ndarray], list[tuple[str, list[str]]]]:
    """The constants of a graph by name, and its nodes as (name, names of the inputs)."""
    [graph] = [value for number, value in read_fields(path.read_bytes()) if number == MODEL_GRAPH]
    assert isinstance(graph, bytes)
    initializers, nodes = {}, []
    for number, value in read_fields(graph):
        if number == GRAPH_INITIALIZER and isinstance(value, bytes):
            name, tensor = read_tensor(value)
            initializers[name] = tensor
        elif number == GRAPH_NODE and isinstance(value, bytes):
            fields = [
                (key, part.decode()) for key, part in read_fields(value) if isinstance(part, bytes) and key <= NODE_NAME
            ]
            name = next((text for key, text in fields if key == NODE_NAME), "")
            nodes.append((name, [text for key, text in fields if key == NODE_INPUT]))
    return initializers, nodes


def read_tensor(message: bytes) -> tuple[str, np.ndarray]:
    fields: dict[int, list[Any]] = {}
    for number, value in read_fields(message):
        fields.setdefault(number, []).append(value)
    dtype = TENSOR_DTYPES[fields[TENSOR_TYPE][0]]
    if parts := fields.get(TENSOR_RAW) or fields.get(TENSOR_FLOATS):
        flat = np.frombuffer(b"".join(parts), dtype)
    else:
        flat = np.array(integers(fields.get(TENSOR_INTS, [0]))).astype(dtype)
    shape = integers(fields.get(TENSOR_DIMS, []))
    return fields[TENSOR_NAME][0].decode(), flat.reshape(shape).copy()


def integers(values: list[int | bytes]) -> list[int]:
    """Integers of a repeated field, whether they came one by one or packed."""
    numbers: list[int] = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = read_varint(value, at)
            numbers.append(number)
    return numbers


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (number, value) pairs of one protocol buffer message."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = read_varint(message, at)
            yield number, value
            continue
        if wire_type == 2:
            size, at = read_varint(message, at)
        else:
            size = {1: 8, 5: 4}[wire_type]
        yield number, message[at : at + size]
        at += size


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """A base-128 integer and the position after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
