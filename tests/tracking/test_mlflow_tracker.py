"""What MLflow shows is what was logged, below the run directory and without a network: `make test-trackers`."""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ragen.errors import ConfigError
from ragen.tracking.rundir import RunDir, read_metrics
from ragen.tracking.tracker import Trackers
from tests.tracking.offline import files_below, run_python
from tests.tracking.trackers import config_of_loggers, some_trackers

mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow; run: make test-trackers")


def only_database(path: Path) -> Path:
    (database,) = (path / "mlflow").glob("*.db")
    return database


def client_and_run(database: Path):
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("my_project")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def history(database: Path, name: str) -> list[tuple[int, float]]:
    client, run = client_and_run(database)
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))


def test_metrics_tables_and_configuration_are_below_the_run_directory_and_nobody_is_asked(tmp_path):
    path = tmp_path / "run"
    code = f"""
with some_trackers(Path({str(path)!r}), "mlflow") as t:
    t.log(0, {{"val-env/A/success": 0.25}})
    t.log_table(10, "val/generations", ["reply", "score"], [["lone \\ud800 surrogate", None]])
    t.log(10, {{"val-env/A/success": 0.5, "val-env/A/pass@8": 1, "bad": float("nan")}})
    t.close("early_stopped")
print("asked", asked)
"""
    result = run_python(code, tmp_path / "home")
    assert (result.returncode, result.stdout) == (0, "asked []\n"), result.stderr
    database = only_database(path)
    assert result.stderr == f"MLflow: mlflow ui --backend-store-uri sqlite:///{database}\n"
    assert files_below(tmp_path / "home") == []

    client, run = client_and_run(database)
    assert (run.info.run_name, run.info.status, run.data.tags["status"]) == ("my_run", "FINISHED", "early_stopped")
    assert run.data.params["seed.train"] == "10000" and run.data.params["trainer.logger"] == '["mlflow"]'
    assert history(database, "val-env/A/success") == [(0, 0.25), (10, 0.5)]
    assert history(database, "val-env/A/pass_at_8") == [(10, 1.0)], "MLflow refuses @ in names"
    assert math.isnan(run.data.metrics["bad"])
    (table,) = client.list_artifacts(run.info.run_id, "tables")
    assert table.path == "tables/val.generations_step_10.json"
    (file,) = path.glob(f"mlflow/artifacts/*/artifacts/{table.path}")
    assert json.loads(file.read_text()) == {"columns": ["reply", "score"], "data": [["lone \ud800 surrogate", None]]}


def test_a_resumed_run_continues_the_same_run_and_shows_each_step_once(tmp_path):
    with some_trackers(tmp_path, "mlflow") as trackers:
        for step in (1, 2, 3):
            trackers.log(step, {"a": 1.0})
        trackers.log(4, {"a": 1.0, "once": 4.0})
        trackers.close("interrupted")
    database = only_database(tmp_path)
    assert client_and_run(database)[1].info.status == "KILLED"

    config = config_of_loggers("mlflow")
    other = replace(config, seed=replace(config.seed, train=7))
    with Trackers(other, RunDir(tmp_path), total_steps=9, resumed_step=2) as trackers:
        assert client_and_run(database)[1].data.metrics == {"a": 1.0}, "the latest value is that of step 2"
        assert client_and_run(database)[1].info.status == "RUNNING"
        trackers.log(3, {"a": 2.0})
    assert only_database(tmp_path) == database
    assert history(database, "a") == [(1, 1.0), (2, 1.0), (3, 2.0)]
    _, run = client_and_run(database)
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"a": 2.0})
    assert (run.data.params["seed.train"], run.data.tags["from_step_2.seed.train"]) == ("10000", "7")


def test_a_database_without_a_run_gets_one(tmp_path):
    """As a process leaves it that is killed between the experiment and the run."""
    database = tmp_path / "mlflow" / "20260101_000000_0000.db"
    database.parent.mkdir()
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}").create_experiment("my_project")
    with some_trackers(tmp_path, "mlflow", resumed_step=1) as trackers:
        trackers.log(2, {"a": 1.0})
    assert only_database(tmp_path) == database and history(database, "a") == [(2, 1.0)]


def test_a_new_run_in_the_folder_of_one_that_was_moved_writes_its_own(tmp_path):
    """MLflow keeps the connections of a process, also to a file that is elsewhere by now."""
    path = tmp_path / "run"
    for step in (1, 2):
        with some_trackers(path, "mlflow") as trackers:
            trackers.log(step, {"a": 1.0})
        path.rename(tmp_path / f"moved_{step}")
    assert [history(only_database(tmp_path / f"moved_{step}"), "a") for step in (1, 2)] == [[(1, 1.0)], [(2, 1.0)]]


def test_a_database_that_fails_ends_the_tracker_and_not_the_run(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), some_trackers(tmp_path, "mlflow") as trackers:
        trackers.log(1, {"a": 1.0})
        only_database(tmp_path).write_bytes(b"no database" * 1000)
        trackers.log(2, {"a": 1.0})
        trackers.log(3, {"a": 1.0})
    (said,) = [record for record in caplog.records if record.name == "ragen.tracking.tracker"]
    assert "The tracker mlflow failed and is off from step 2 on" in said.getMessage()
    assert len(read_metrics(tmp_path)) == 3


@pytest.mark.parametrize("name", ["a%20b", "what?"])
def test_a_path_that_no_address_can_hold_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"mlflow cannot write to .* whose path holds"):
        with some_trackers(tmp_path / name, "mlflow"):
            raise AssertionError("not reached")


def test_a_parameter_that_is_too_long_is_cut_and_says_so(tmp_path):
    config = config_of_loggers("mlflow")
    long = replace(config, model_path="x" * 7000)
    with Trackers(long, RunDir(tmp_path), total_steps=9, resumed_step=None):
        pass
    value = client_and_run(only_database(tmp_path))[1].data.params["model_path"]
    assert len(value) == 6000 and value.endswith("x...")
