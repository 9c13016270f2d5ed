"""What a run directory holds survives the disk: any text, any kill, any resume."""

import json
import math
from datetime import datetime

import pytest

from ragen.errors import RagenError
from ragen.tracking.rundir import RunDir, read_metrics, read_status, read_table, table_steps


def test_metrics_are_appended_line_by_line(tmp_path):
    run = RunDir(tmp_path)
    run.log(1, {"rollout/success": 0.5})
    run.log(2, {"rollout/success": 0.75})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 1, "rollout/success": 0.5}, {"step": 2, "rollout/success": 0.75}]


def test_no_temporary_file_stays_behind(tmp_path):
    run = RunDir(tmp_path)
    run.write_status("running")
    run.write_status("finished", seconds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    status = read_status(tmp_path)
    assert (status["state"], status["reason"], status["seconds"]) == ("finished", "", 1)


def test_metrics_are_read_back_from_the_folder_or_the_file(tmp_path):
    RunDir(tmp_path).log(1, {"actor/lr": 1e-6})
    assert read_metrics(tmp_path) == read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "actor/lr": 1e-6}]


def test_not_a_number_and_infinity_are_read_back(tmp_path):
    RunDir(tmp_path).log(1, {"a": float("inf"), "b": float("nan")})
    (record,) = read_metrics(tmp_path)
    assert record["a"] == math.inf and math.isnan(record["b"])


@pytest.mark.parametrize("num_bytes", range(1, 12))
def test_metrics_cut_by_a_kill_are_skipped_and_the_next_line_is_whole(tmp_path, num_bytes):
    run = RunDir(tmp_path)
    run.log(1, {"a": 1})
    run.log(2, {"a": 2})
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-num_bytes])
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1}]
    run.log(2, {"a": 2})
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1}, {"step": 2, "a": 2}]


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"a": 1}', '{"step": null}'])
def test_a_broken_line_of_metrics_is_an_error_with_its_number(tmp_path, line):
    RunDir(tmp_path).log(1, {})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RagenError, match="line 2"):
        read_metrics(tmp_path)


def test_a_folder_without_metrics_says_so(tmp_path):
    with pytest.raises(RagenError, match=r"holds no metrics\.jsonl"):
        read_metrics(tmp_path)


def test_a_resumed_run_has_each_step_once(tmp_path):
    run = RunDir(tmp_path)
    for step in range(5):
        run.log(step, {"a": step})
        run.log_table(step, "rollout/group_rv_table", ["group_id"], [[step]])
    run.truncate_after(2)
    assert [record["step"] for record in read_metrics(tmp_path)] == [0, 1, 2]
    assert table_steps(tmp_path, "rollout/group_rv_table") == [0, 1, 2]
    run.log(3, {"a": 33})
    assert read_metrics(tmp_path)[-1] == {"step": 3, "a": 33}


def test_what_a_resume_drops_is_kept_aside(tmp_path):
    run = RunDir(tmp_path)
    run.log(1, {"a": 1})
    run.log(2, {"a": 2})
    run.truncate_after(1)
    assert read_metrics(tmp_path / "metrics.dropped.jsonl") == [{"step": 2, "a": 2}]


def test_truncating_keeps_the_bytes_of_the_lines_that_stay(tmp_path):
    run = RunDir(tmp_path)
    run.log(1, {"a": 0.1 + 0.2, "b": 1e-300, "c": 7, "d": float("nan")})
    before = (tmp_path / "metrics.jsonl").read_bytes()
    run.log(2, {"a": 2})
    run.truncate_after(1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_truncating_a_new_folder_writes_nothing(tmp_path):
    RunDir(tmp_path).truncate_after(3)
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_columns_and_rows_in_a_file_of_its_step(tmp_path):
    rows = [["bucket_1", 3, 0.5], ["lone \ud800", None, float("inf")]]
    path = RunDir(tmp_path).log_table(51, "grad_norm/bucket_1/group_rv_table", ["bucket", "group_id", "x"], rows)
    assert path == tmp_path / "tables" / "grad_norm.bucket_1.group_rv_table_step_51.json"
    assert read_table(tmp_path, "grad_norm/bucket_1/group_rv_table", 51) == (["bucket", "group_id", "x"], rows)
    with pytest.raises(RagenError, match=r"\[51\]"):
        read_table(tmp_path, "grad_norm/bucket_1/group_rv_table", 1)


def test_the_status_names_the_rule_that_stopped_the_run(tmp_path):
    RunDir(tmp_path).write_status("early_stopped", "no group left", step=7, early_stop="empty_filtered_steps")
    status = read_status(tmp_path)
    assert (status["state"], status["step"], status["early_stop"]) == ("early_stopped", 7, "empty_filtered_steps")
    assert datetime.fromisoformat(status["started_at"]) <= datetime.fromisoformat(status["updated_at"])
