"""Broken files and folders are named in one line."""

import json
from pathlib import Path

import pytest

from ragen import files
from ragen.errors import ConfigError, FileError
from ragen.files import (
    check_writable,
    finite,
    number,
    read_object,
    read_tensor_header,
    read_yaml,
    readable,
    stamp,
    to_csv,
    value_at,
)

BROKEN_JSON = {
    b"": "is not JSON",
    b'{"a": 1': "is not JSON",
    b"\x80\x81": "is not text",
    b"[1, 2]": "expected a JSON object, got list",
    b"[" * 100_000: "is not JSON",
}
BROKEN_YAML = {
    b"a: [1": "is not YAML",
    b"a: *b": "is not YAML",
    b"\ta: 1": "is not YAML",
    b"- 1": "expected a mapping of keys, got list",
    b"": "expected a mapping of keys, got NoneType",
    b"\xff\xfea": "is not text",
}


@pytest.mark.parametrize("content", BROKEN_JSON, ids=repr)
def test_broken_json_names_its_file(tmp_path: Path, content: bytes):
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=BROKEN_JSON[content]) as caught:
        read_object(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", BROKEN_YAML, ids=repr)
def test_broken_yaml_names_its_file(tmp_path: Path, content: bytes):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(FileError, match=BROKEN_YAML[content]) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_says_whether_the_folder_is_there(tmp_path: Path):
    with pytest.raises(FileError, match=r"holds no config\.yaml"):
        read_yaml(tmp_path / "config.yaml")
    with pytest.raises(FileError, match="NOPE does not exist"):
        read_yaml(tmp_path / "NOPE/config.yaml")


def test_a_missing_key_names_its_file():
    assert value_at({"a": {"b": 1}}, "a.b", Path("x.yaml")) == 1
    with pytest.raises(FileError, match=r"x\.yaml has no key a\.c"):
        value_at({"a": {"b": 1}}, "a.c", Path("x.yaml"))


def stored(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


WHOLE = stored({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))


def test_the_header_of_a_weight_file_tells_its_tensors(tmp_path: Path):
    (tmp_path / "model.safetensors").write_bytes(WHOLE)
    assert read_tensor_header(tmp_path / "model.safetensors")["w"].shape == (2,)


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", WHOLE[:-1], WHOLE[:20], WHOLE + b"x", b"\xff" * 64, stored([1]), stored({"w": 5}), stored({"w": {}})],
    ids=repr,
)
def test_a_broken_weight_file_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"model\.safetensors .*Copy it again"):
        read_tensor_header(path)


# --- folders to write to


def test_a_folder_that_can_be_made_is_not_made(tmp_path: Path):
    check_writable(tmp_path / "a/b/c", "out")
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_named(tmp_path: Path):
    (tmp_path / "a").write_text("")
    with pytest.raises(ConfigError, match=r"out=.*a/b: .*/a is a file"):
        check_writable(tmp_path / "a/b", "out")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"out=.*link/b: .*/link is a link to what does not exist"):
        check_writable(tmp_path / "link/b", "out")


@pytest.mark.parametrize("folder", ["/proc/nope/run", "/sys/run"])
def test_a_folder_of_the_system_is_refused(folder: str):
    with pytest.raises(ConfigError, match=r"not writable|0 MB are free"):
        check_writable(Path(folder), "out")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="too long"):
        check_writable(tmp_path / ("x" * 300) / "y", "out")


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=r"MB are free there.*Free some space"):
        check_writable(tmp_path, "out", num_bytes=10**18)
    monkeypatch.setattr(files, "MIN_FREE_BYTES", 10**18)
    with pytest.raises(ConfigError, match="MB are free there"):
        check_writable(tmp_path, "out")


def test_only_finite_numbers_are_written_as_json():
    values = [1, 0.5, float("nan"), float("-inf"), True, "1", None]
    assert [number(value) for value in values] == [1, 0.5, None, None, None, None, None]
    assert finite(values) == [1, 0.5, None, None, True, "1", None]
    assert finite({"a": [1.0, float("nan")], "b": (float("inf"), "x")}) == {"a": [1.0, None], "b": [None, "x"]}


def test_a_table_becomes_csv():
    assert to_csv(["value", "note"], [[1, "a, b"], [0.5, ""]]) == 'value,note\n1,"a, b"\n0.5,\n'


@pytest.mark.parametrize("text", ["[" * 2_100, "- " * 2_100, "{" * 2_100, "? " * 2_100])
def test_a_yaml_file_that_is_nested_too_deeply_is_a_sentence(tmp_path, text):
    """The C library of yaml ends the whole process on such a text, once it is long enough."""
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(FileError, match="is not YAML"):
        read_yaml(tmp_path / "config.yaml")


def test_what_cannot_be_read_becomes_something_else(tmp_path: Path):
    path = tmp_path / "status.json"
    assert readable(lambda: read_object(path), {"state": "unknown"}) == {"state": "unknown"}
    path.write_text('{"state": "running"}')
    assert readable(lambda: read_object(path), {}) == {"state": "running"}
    with pytest.raises(KeyError):
        readable(lambda: read_object(path)["step"], None)
    assert readable(lambda: read_object(path)["step"], None, also=(KeyError,)) is None


def test_the_stamp_of_a_file_changes_with_it(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    assert stamp(path) is None
    path.write_text("a")
    before = stamp(path)
    assert before is not None and before == stamp(path)
    path.write_text("ab")
    assert stamp(path) != before
