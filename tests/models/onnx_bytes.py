"""Small ONNX files, written by hand: a protocol buffer is a list of numbered fields."""

import numpy as np

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}


def varint(number: int) -> bytes:
    """300 -> ac 02: seven bits a byte, the lowest first."""
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name: str, array: np.ndarray) -> bytes:
    """A TensorProto with raw data."""
    dims = b"".join(number_field(1, size) for size in array.shape)
    kind = number_field(2, TYPES[str(array.dtype)])
    return dims + kind + bytes_field(8, name.encode()) + bytes_field(9, array.tobytes())


def node(name: str, inputs: list[str]) -> bytes:
    return b"".join(bytes_field(1, each.encode()) for each in inputs) + bytes_field(3, name.encode())


def model(tensors: list[bytes], nodes: list[bytes]) -> bytes:
    """A ModelProto whose graph holds these."""
    graph = b"".join(bytes_field(1, each) for each in nodes) + b"".join(bytes_field(5, each) for each in tensors)
    return number_field(1, 8) + bytes_field(7, graph)
