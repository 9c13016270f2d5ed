"""Files of facts and tensors: whole, in pieces, split, and damaged in every way."""

import hashlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from ragen.errors import ConfigError, FileError, MissingExtra
from ragen.models.gguf_file import Joined, open_gguf, sha256_of
from tests.models.gguf_bytes import BF16, F16, F32, gguf_bytes, plain, write_split

Q8_0 = 8
FACTS = {"general.architecture": "toy", "toy.width": 3, "toy.scale": 0.5, "toy.names": ["a", "é"], "toy.on": True}
MATRIX = np.array([[1.0, -2.0, 0.5], [4.0, 0.0, 8.0]])


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    kinds = {"f32": F32, "f16": F16, "bf16": BF16}
    path.write_bytes(gguf_bytes(FACTS, {name: plain(MATRIX, kind) for name, kind in kinds.items()}))
    return path


def in_pieces(path: Path, size: int) -> list[Path]:
    content = path.read_bytes()
    pieces = []
    for number, start in enumerate(range(0, len(content), size)):
        pieces.append(path.with_name(f"piece{number:03d}"))
        pieces[-1].write_bytes(content[start : start + size])
    return pieces


def test_facts_and_tensors_are_read(toy: Path):
    gguf = open_gguf([toy])
    assert gguf.facts == FACTS
    assert {name: gguf.read(name).tolist() for name in gguf.tensors} == dict.fromkeys(
        ("f32", "f16", "bf16"), MATRIX.tolist()
    )
    assert gguf.read("f16", every=2).tolist() == [MATRIX[0].tolist()]


@pytest.mark.parametrize("size", [7, 100, 10_000])
def test_pieces_are_read_as_the_whole_file(toy: Path, size: int):
    pieces = in_pieces(toy, size)
    whole, cut = open_gguf([toy]), open_gguf(pieces)
    assert cut.facts == whole.facts
    assert all((cut.read(name) == whole.read(name)).all() for name in whole.tensors)
    assert sha256_of(cut.paths) == hashlib.sha256(toy.read_bytes()).hexdigest()


def test_pieces_in_the_wrong_order_are_not_a_file(toy: Path):
    pieces = in_pieces(toy, 7)
    with pytest.raises(FileError, match="does not start with GGUF"):
        open_gguf(pieces[::-1])
    with pytest.raises(FileError, match=r"cut short: its pieces together have .* give all of its pieces"):
        open_gguf(pieces[:-5])


def test_the_first_of_split_files_stands_for_all(toy: Path):
    parts = write_split(toy, 3)
    whole = open_gguf([toy])
    for given in ([parts[0]], [parts[2]], parts[::-1]):
        gguf = open_gguf(given)
        assert gguf.paths == parts
        assert {name: gguf.read(name).tolist() for name in gguf.tensors} == {
            name: whole.read(name).tolist() for name in whole.tensors
        }


def test_a_missing_part_is_named(toy: Path):
    parts = write_split(toy, 3)
    with pytest.raises(ConfigError, match=r"split into 3 parts, and these are given: 1, 3\. Give all of them"):
        open_gguf([parts[0], parts[2]])
    parts[1].unlink()
    with pytest.raises(FileError, match=r"toy-00002-of-00003\.gguf is missing"):
        open_gguf([parts[0]])


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path):
    with pytest.raises(FileError, match="is missing"):
        open_gguf([tmp_path / "no.gguf"])
    with pytest.raises(FileError, match="is a folder"):
        open_gguf([tmp_path])


def test_every_cut_is_an_error_in_one_sentence(toy: Path, tmp_path: Path):
    content = toy.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in range(len(content) - 31):  # the last 31 bytes may be padding
        cut.write_bytes(content[:size])
        with pytest.raises(FileError):
            open_gguf([cut])


def test_damaged_headers_end_in_errors_and_small_memory(toy: Path, tmp_path: Path):
    content = bytearray(toy.read_bytes())
    end = content.rindex(b"bf16") + 60
    damaged = tmp_path / "damaged.gguf"
    for at in range(4, min(end, len(content))):
        for value in (0xFF, 0x7F):
            changed = bytearray(content)
            changed[at] = value
            damaged.write_bytes(changed)
            try:
                gguf = open_gguf([damaged])
            except (FileError, ConfigError, MissingExtra):
                continue
            assert all(tensor.num_bytes <= len(content) for tensor in gguf.tensors.values())


def test_quantized_tensors_need_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf_bytes(FACTS, {"w": (Q8_0, (1, 32), b"\0\x3c" + bytes(range(32)))}))
    if importlib.util.find_spec("gguf") is not None:  # one block: a scale of 1.0 in float16, then 32 whole numbers
        assert open_gguf([path]).read("w").tolist() == [[float(number) for number in range(32)]]
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"q\.gguf holds quantized weights.*pip install -e '\.\[models\]'"):
        open_gguf([path])


def test_joined_files_read_on_across_their_ends(tmp_path: Path):
    for name, content in (("a", b"12"), ("b", b""), ("c", b"345")):
        (tmp_path / name).write_bytes(content)
    with Joined([tmp_path / name for name in "abc"]).buffered() as file:
        assert file.read(4) == b"1234"
        file.seek(1)
        assert file.read() == b"2345"
