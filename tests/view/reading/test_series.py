"""Metrics as columns."""

import json

from ragen.tracking.rundir import RunDir
from ragen.view.reading import series
from ragen.view.reading.series import read_series
from tests.view.runs import write_run


def test_columns_are_as_long_as_the_steps(tmp_path):
    run = RunDir(tmp_path)
    run.log(0, {"a": 1.0})
    run.log(1, {"b": float("nan")})
    run.log(2, {"a": 3.0, "b": 4})
    found = read_series(tmp_path)
    assert found["steps"] == [0, 1, 2]
    assert found["columns"] == {"a": [1.0, None, 3.0], "b": [None, None, 4]}


def test_only_what_is_new_is_sent(tmp_path):
    run = RunDir(tmp_path)
    run.log(0, {"a": 1.0})
    first = read_series(tmp_path)
    run.log(1, {"a": 2.0})
    second = read_series(tmp_path, first["offset"], first["version"])
    assert (second["steps"], second["reset"]) == ([1], False)
    assert read_series(tmp_path, second["offset"], second["version"])["steps"] == []


def test_a_half_written_line_waits(tmp_path):
    path = write_run(tmp_path) / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(b'{"step":2,"a":')
        file.flush()
        first = read_series(tmp_path)
        assert first["steps"] == [0, 1]
        file.write(b"1.0}\n")
    assert read_series(tmp_path, first["offset"])["columns"] == {"a": [1.0]}


def test_a_resumed_run_is_sent_anew(tmp_path):
    write_run(tmp_path, (0.1, 0.2, 0.3))
    before = read_series(tmp_path)
    run = RunDir(tmp_path)
    run.truncate_after(0)
    shrunk = read_series(tmp_path, before["offset"], before["version"])
    assert (shrunk["reset"], shrunk["steps"]) == (True, [0])
    for step in (1, 2, 3, 4):  # beyond where it was
        run.log(step, {"other": 1.0})
    after = read_series(tmp_path, before["offset"], before["version"])
    assert (after["reset"], after["steps"]) == (True, [0, 1, 2, 3, 4])


def test_an_offset_inside_a_line_starts_over(tmp_path):
    write_run(tmp_path)
    found = read_series(tmp_path, 5)
    assert (found["reset"], found["steps"]) == (True, [0, 1])


def test_what_is_no_row_is_left_out(tmp_path):
    deep = b'{"step": 1, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    rows = [b"null", b"[1]", b"{}", b'{"step": "x"}', b"\xff\xfe", b"\0" * 9, deep, b'{"step": 3, "a": 1, "b": "x"}']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(rows) + b"\n")
    found = read_series(tmp_path)
    assert (found["steps"], found["columns"]) == ([3], {"a": [1], "b": [None]})


def test_a_missing_file_has_no_steps(tmp_path):
    assert read_series(tmp_path)["steps"] == []
    assert read_series(tmp_path, 10)["reset"] is True


def test_a_large_file_comes_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(series, "LONGEST_READ", 64)
    run = RunDir(tmp_path)
    for step in range(6):
        run.log(step, {"a": 1.0, "long" * (20 if step == 3 else 1): 2.0})
    steps, found = [], {"offset": 0, "more": True}
    while found["more"]:
        found = read_series(tmp_path, found["offset"])
        steps += found["steps"]
    assert steps == list(range(6))
    assert json.dumps(found)
