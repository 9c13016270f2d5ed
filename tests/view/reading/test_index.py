"""The table of episodes."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragen.errors import RagenError
from ragen.tracking.episodes import episode_to_json
from ragen.tracking.rundir import RunDir
from ragen.view.reading import index as module
from ragen.view.reading.folders import NotThere
from ragen.view.reading.index import Index, header_of, read_headers, read_line
from tests.view.runs import episode


def headers(index: Index) -> list[tuple]:
    index.update()
    sql = 'select file, "index", "group", member, status, reward, tokens from episodes order by file, "index"'
    return [tuple(row.values()) for row in index.select(sql)]


def test_an_episode_is_told_from_the_start_of_its_line(tmp_path):
    RunDir(tmp_path).write_episodes("train_step_3", [episode(4, 1, reward=0.0), episode(5)])
    index = Index(tmp_path)
    assert headers(index) == [
        ("train_step_3", 0, 4, 1, "failed", 0.0, 2),
        ("train_step_3", 1, 5, 0, "solved", 1.0, 2),
    ]
    assert index.select("select rollout, step, kind, count from files") == [
        {"rollout": "train", "step": 3, "kind": "member", "count": 2}
    ]


@pytest.mark.parametrize("form", ["plain", "foreign gzip", "older keys"])
def test_other_forms_of_files_are_read_alike(tmp_path, form):
    records = [episode_to_json(episode(group)) for group in range(3)]
    if form == "older keys":
        records = [dict(reversed(list(record.items()))) for record in records]
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    folder = tmp_path / "episodes"
    folder.mkdir()
    name = "val_step_2.jsonl.gz" if form == "foreign gzip" else "val_step_2.jsonl"
    (folder / name).write_bytes(gzip.compress(content) if form == "foreign gzip" else content)
    index = Index(tmp_path)
    assert [row[2] for row in headers(index)] == [0, 1, 2]
    assert json.loads(read_line(index.line("val_step_2", 2)))["group_id"] == 2


def test_only_changed_files_are_read_again_and_deleted_ones_are_forgotten(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    for step in (1, 2):
        run.write_episodes(f"train_step_{step}", [episode()])
    read = []
    monkeypatch.setattr(module, "read_headers", lambda path: read.append(path.name) or read_headers(path))
    assert Index(tmp_path).update() == {"done": 2, "of": 2}
    assert Index(tmp_path).update() == {"done": 2, "of": 2}
    assert read == ["train_step_1.jsonl.gz", "train_step_2.jsonl.gz"]
    run.write_episodes("train_step_2", [episode(), episode()])
    (tmp_path / "episodes" / "train_step_1.jsonl.gz").unlink()
    assert [row[:2] for row in headers(Index(tmp_path))] == [("train_step_2", 0), ("train_step_2", 1)]
    assert len(read) == 3


def test_indexing_goes_on_request_by_request(tmp_path):
    run = RunDir(tmp_path)
    for step in range(3):
        run.write_episodes(f"train_step_{step}", [episode()])
    index = Index(tmp_path)
    assert index.update(seconds=-1) == {"done": 0, "of": 3}
    assert index.update() == {"done": 3, "of": 3}


@pytest.mark.parametrize("content", [b"no table", b"", b"SQLite format 3\0" + b"x" * 5000])
def test_a_broken_cache_is_built_anew(tmp_path, content):
    RunDir(tmp_path / "run").write_episodes("train_step_1", [episode()])
    index = Index(tmp_path / "run")
    index.path.write_bytes(content)
    assert len(headers(index)) == 1


def test_nothing_is_written_into_the_run(tmp_path, cache):
    RunDir(tmp_path / "run").write_episodes("train_step_1", [episode()])
    headers(Index(tmp_path / "run"))
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == ["episodes", "train_step_1.jsonl.gz"]
    assert len(list(cache.rglob("*.sqlite"))) == 1


def test_a_cut_file_keeps_its_whole_episodes(tmp_path):
    path = RunDir(tmp_path).write_episodes("train_step_1", [episode(0), episode(1)])
    path.write_bytes(path.read_bytes()[:-10])
    assert len(headers(Index(tmp_path))) == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\x1f\x8b", b"not gzip at all, but long enough for a header"])
def test_a_damaged_file_has_no_episodes(tmp_path, content):
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "train_step_1.jsonl.gz").write_bytes(content)
    assert headers(Index(tmp_path)) == []


def test_long_and_odd_lines_are_headers_too(tmp_path):
    hostile = "</script>\0\ud800" + "x" * 1_000_000
    (tmp_path / "episodes").mkdir()
    record = episode_to_json(episode()) | {"tag": hostile, "seed": 2**80, "reward": float("nan")}
    lines = [json.dumps(record), "null", "[1]", "{}", '{"status": [1], "group_id": {}}']
    (tmp_path / "episodes" / "train_step_1.jsonl").write_text("\n".join(lines) + "\n")
    index = Index(tmp_path)
    assert len(headers(index)) == 5
    assert len(index.select("select tag from episodes")[0]["tag"]) > 1_000_000


def test_quotes_inside_a_text_end_no_header():
    start = json.dumps({"tag": 'a,"error":', "status": "solved", "error": ""}, separators=(",", ":")).encode()
    assert header_of(start) == {"tag": 'a,"error":', "status": "solved"}
    assert header_of(b"") is None


@pytest.mark.parametrize(("file", "number"), [("train_step_1", 9), ("../status", 0), ("nope", 0), ("", 0)])
def test_what_is_not_there_is_said(tmp_path, file, number):
    RunDir(tmp_path).write_episodes("train_step_1", [episode()])
    with pytest.raises(NotThere):
        Index(tmp_path).line(file, number)


def test_many_may_ask_at_once(tmp_path):
    run = RunDir(tmp_path)
    for step in range(5):
        run.write_episodes(f"train_step_{step}", [episode(group) for group in range(4)])
    with ThreadPoolExecutor(8) as threads:  # of several servers, which share nothing but the cache
        found = list(threads.map(lambda _: len(headers(Index(tmp_path))), range(16)))
    assert found == [20] * 16


def test_a_table_that_is_damaged_further_down_is_removed(tmp_path):
    RunDir(tmp_path).write_episodes("train_step_1", [episode(group) for group in range(500)])
    index = Index(tmp_path)
    headers(index)
    content = bytearray(index.path.read_bytes())
    content[8192:-4096] = b"x" * (len(content) - 8192 - 4096)
    index.path.write_bytes(content)
    with pytest.raises(RagenError, match="damaged and has been removed"):
        headers(index)
    assert len(headers(index)) == 500


def test_a_cache_that_cannot_be_used_is_a_sentence(tmp_path):
    RunDir(tmp_path / "run").write_episodes("train_step_1", [episode()])
    index = Index(tmp_path / "run", tmp_path)
    index.path.mkdir()
    with pytest.raises(RagenError, match="cannot be used"):
        index.update()
