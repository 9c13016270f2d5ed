"""Where a run is read from."""

import math

import pytest

from ragen.errors import RagenError
from ragen.plotting.gradient_command import main
from ragen.plotting.history import read_history, read_run_dir, split_row
from ragen.tracking.rundir import RunDir


def test_a_source_that_does_not_exist_is_an_error(tmp_path, capsys):
    assert main(["--run-dir", "no/such/run"]) == 1
    assert "no/such/run does not exist" in capsys.readouterr().err
    with pytest.raises(RagenError, match="neither a folder that exists nor entity/project/run_id"):
        read_history("no/such/folder/here")
    with pytest.raises(RagenError, match=r"neither metrics.jsonl nor \*.wandb"):
        read_history(str(tmp_path))


def test_rows_of_wandb_are_split_into_numbers_and_tables():
    row = {
        "_step": 3,
        "a": 1,
        "b": "NaN",
        "text": "no number",
        "t": {"_type": "table-file", "path": "media/t.json"},
        "u._type": "table-file",
        "u.path": "media/u.json",
        "u.nrows": 4,
    }
    metrics, found = split_row(row)
    assert metrics["a"] == 1 and math.isnan(metrics["b"]) and set(metrics) == {"a", "b"}
    assert found == {"t": "media/t.json", "u": "media/u.json"}


def test_a_run_has_the_name_that_its_configuration_gives_it(tmp_path):
    run = RunDir(tmp_path / "folder")
    run.log(1, {"a": 1.0})
    assert read_run_dir(run.path).name == "folder"
    run.write_config("trainer: {experiment_name: first}")
    assert read_run_dir(run.path).name == "first", "as its trackers call it"
