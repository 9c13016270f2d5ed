"""Constants and nodes of ONNX files."""

import numpy as np
import pytest

from ragen.models.onnx_file import integers, read_fields, read_onnx, read_tensor, read_varint
from tests.models.onnx_bytes import bytes_field, model, node, number_field, tensor, varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**40])
def test_a_varint_is_read_back_with_the_position_after_it(number):
    assert read_varint(b"\xff\x01" + varint(number) + b"rest", 2) == (number, 2 + len(varint(number)))


def test_fields_of_every_wire_type_come_in_order():
    fixed = varint(3 << 3 | 1) + b"8 bytes!" + varint(4 << 3 | 5) + b"four"
    message = number_field(1, 300) + bytes_field(2, b"text") + fixed
    assert list(read_fields(message)) == [(1, 300), (2, b"text"), (3, b"8 bytes!"), (4, b"four")]


def test_repeated_integers_come_one_by_one_or_packed():
    assert integers([1, 300]) == integers([varint(1) + varint(300)]) == [1, 300]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "int32", "int64"])
def test_raw_data_is_read_in_its_type_and_shape(dtype):
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    name, found = read_tensor(tensor("w", array))
    assert (name, found.dtype, found.tolist()) == ("w", array.dtype, [[0, 1, 2], [3, 4, 5]])


def test_data_in_typed_fields_is_read_too():
    floats = number_field(2, 1) + bytes_field(8, b"scale") + bytes_field(4, np.float32(0.5).tobytes())
    assert read_tensor(floats + number_field(1, 1))[1].tolist() == [0.5]
    zero_point = number_field(2, 2) + bytes_field(8, b"zero") + bytes_field(5, varint(128))
    name, found = read_tensor(zero_point)
    assert (name, found.shape, int(found)) == ("zero", (), 128)


def test_a_graph_gives_its_constants_and_nodes(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model([tensor("a", np.ones(2, "float32"))], [node("/layer/MatMul", ["x", "a"])]))
    constants, nodes = read_onnx(path)
    assert {name: array.tolist() for name, array in constants.items()} == {"a": [1.0, 1.0]}
    assert nodes == [("/layer/MatMul", ["x", "a"])]
