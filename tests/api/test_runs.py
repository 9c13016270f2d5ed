"""What a run wrote, as flat records."""

import json

import pytest

import ragen
from ragen.errors import RagenError
from ragen.tracking.run_card import begin_card
from ragen.tracking.rundir import RunDir
from tests.tracking.trackers import config_of_loggers
from tests.trainer.runs import episode


@pytest.fixture
def run(tmp_path) -> ragen.Run:
    folder = RunDir(tmp_path)
    folder.write_config("seed: {train: 3}")
    folder.log(1, {"a/b": 0.5})
    folder.log(2, {"a/b": 0.25, "c": 1.0})
    folder.write_episodes("train_step_2", [episode(0, [0.0, 1.0]), episode(1, [0.5])])
    folder.write_episodes("train_step_10", [episode(0, [2.0])])
    folder.write_episodes("greedy", [episode(0, [3.0])])
    folder.write_status("finished", step=2)
    return ragen.load_run(tmp_path)


def test_metrics_status_and_configuration(run):
    assert run.metrics == [{"step": 1, "a/b": 0.5}, {"step": 2, "a/b": 0.25, "c": 1.0}]
    assert (run.status["state"], run.config) == ("finished", {"seed": {"train": 3}})


def test_the_card_of_a_run_is_a_record(run):
    begin_card(run.path, config_of_loggers(), device="cpu", from_step=0)
    assert run.card["attempts"][0]["state"] == "running"


def test_episodes_are_flat_and_in_order(run):
    rows = run.episodes()
    assert [(row["rollout"], row["step"], row["index"], row["reward"]) for row in rows] == [
        ("greedy", None, 0, 3.0),
        ("train", 2, 0, 1.0),
        ("train", 2, 1, 0.5),
        ("train", 10, 0, 2.0),
    ]
    assert not any(isinstance(value, list | dict) for row in rows for value in row.values())
    assert len(run.episodes("train")) == 3 and len(run.episodes(step=10)) == 1
    json.dumps(rows)


def test_turns_hold_the_texts(run):
    rows = run.turns("train", step=2)
    assert [(row["index"], row["turn"], row["reward"], row["text"]) for row in rows] == [
        (0, 1, 0.0, "x"),
        (0, 2, 1.0, "x"),
        (1, 1, 0.5, "x"),
    ]


def test_another_folder_is_no_run(tmp_path):
    with pytest.raises(RagenError, match="is not a run directory"):
        ragen.load_run(tmp_path)
