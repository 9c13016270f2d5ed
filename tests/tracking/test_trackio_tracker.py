"""What Trackio shows is what was logged, below the run directory and without a network: `make test-trackers`."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ragen.errors import RagenError
from ragen.tracking.rundir import RunDir, read_metrics
from ragen.tracking.tracker import Trackers
from tests.tracking.offline import files_below, run_python
from tests.tracking.trackers import config_of_loggers, some_trackers

pytest.importorskip("trackio", reason="needs the extra trackio; run: make test-trackers")

READ = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
(run,) = trackio.Api().runs("my_project")
logs = SQLiteStorage.get_logs("my_project", run.name, run_id=run.id)
print(json.dumps([run.id, run.name, run.config, [{k: v for k, v in row.items() if k != "timestamp"} for row in logs]]))
"""


def read(path: Path) -> tuple[str, str, dict, list[dict]]:
    """Id, name, configuration and rows of the run, as Trackio reads them in a process of its own."""
    environment = os.environ | {"TRACKIO_DIR": str(path / "trackio")}
    command = [sys.executable, "-c", READ]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return tuple(json.loads(result.stdout.splitlines()[-1]))


def test_metrics_tables_and_configuration_are_below_the_run_directory_and_nobody_is_asked(tmp_path):
    path = tmp_path / "run"
    code = f"""
with some_trackers(Path({str(path)!r}), "trackio") as t:
    t.log(0, {{"val-env/A/success": 0.25}})
    t.log_table(10, "val/generations", ["reply", "score"], [["lone \\ud800 surrogate", None]])
    t.log(10, {{"val-env/A/pass@8": 1, "bad": float("inf")}})
print("asked", asked)
"""
    result = run_python(code, tmp_path / "home")
    assert (result.returncode, result.stdout) == (0, "asked []\n"), result.stderr
    assert result.stderr == f"Trackio: TRACKIO_DIR={path / 'trackio'} trackio show --project my_project\n"
    assert files_below(tmp_path / "home") == []

    run_id, name, config, rows = read(path)
    assert (name, run_id) == ("my_run", (path / "trackio" / "run_id.txt").read_text().strip())
    assert config["seed"] == {"train": 10000, "val": 123}
    table = {"_type": "trackio.table", "_value": [{"reply": "lone ? surrogate", "score": None}]}
    assert rows == [
        {"step": 0, "val-env/A/success": 0.25},
        {"step": 10, "val/generations": table},
        {"step": 10, "val-env/A/pass@8": 1, "bad": float("inf")},
    ]


def test_a_resumed_run_continues_the_same_run_and_shows_each_step_once(tmp_path):
    with some_trackers(tmp_path, "trackio") as trackers:
        for step in (1, 2, 3):
            trackers.log(step, {"a": 1.0})
    run_id = read(tmp_path)[0]
    with some_trackers(tmp_path, "trackio", resumed_step=1) as trackers:
        for step in (2, 3):
            trackers.log(step, {"a": 2.0})
    resumed_id, _, _, rows = read(tmp_path)
    assert resumed_id == run_id
    assert [(row["step"], row["a"]) for row in rows] == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_two_runs_of_a_process_write_to_their_own_folders(tmp_path):
    with some_trackers(tmp_path / "one", "trackio") as one, some_trackers(tmp_path / "two", "trackio") as two:
        one.log(1, {"a": 1.0})
        two.log(2, {"a": 2.0})
        one.log(3, {"a": 3.0})
    assert [row["step"] for row in read(tmp_path / "one")[3]] == [1, 3]
    assert [row["step"] for row in read(tmp_path / "two")[3]] == [2]


def test_a_database_that_fails_ends_the_tracker_and_not_the_run(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), some_trackers(tmp_path, "trackio") as trackers:
        trackers.log(1, {"a": 1.0})
        (tmp_path / "trackio" / "my_project.db").write_bytes(b"no database" * 1000)
        trackers.log(2, {"a": 1.0})
        trackers.log(3, {"a": 1.0})
    (said,) = [record for record in caplog.records if record.name == "ragen.tracking.tracker"]
    assert "The tracker trackio failed and is off from step 2 on" in said.getMessage()
    assert len(read_metrics(tmp_path)) == 3


def test_a_project_name_that_trackio_reserves_stops_the_run_with_its_reason(tmp_path):
    config = config_of_loggers("trackio")
    config = replace(config, trainer=replace(config.trainer, project_name="registry-a"))
    with pytest.raises(RagenError, match=r"trackio cannot start \(ValueError: Project name 'registry-a'"):
        with Trackers(config, RunDir(tmp_path), total_steps=9, resumed_step=None):
            raise AssertionError("not reached")
