"""Every run writes its directory; views may fail, the run continues."""

import logging

import numpy as np
import pytest

from ragen.errors import ConfigError, MissingExtra, RagenError
from ragen.tracking import tracker as module
from ragen.tracking.rundir import read_metrics, read_status, read_table
from ragen.tracking.tracker import RunFacts
from tests.tracking.trackers import config_of_loggers, some_trackers


class Recorder:
    """A tracker that remembers its calls, and fails at `fails_at`."""

    def __init__(self, fails_at: str = ""):
        self.calls: list[tuple] = []
        self.fails_at = fails_at

    def _call(self, *call):
        self.calls.append(call)
        if call[0] == self.fails_at:
            raise OSError("no space left")

    def log(self, step, metrics):
        self._call("log", step, dict(metrics))

    def log_table(self, step, name, columns, rows):
        self._call("log_table", step, name, columns, rows)

    def close(self, status):
        self._call("close", status)


@pytest.fixture
def recorders(monkeypatch) -> dict[str, Recorder]:
    """Two trackers that can be named in trainer.logger: good and bad."""
    views = {"good": Recorder(), "bad": Recorder()}
    for name, view in views.items():
        monkeypatch.setitem(module.TRACKERS, name, lambda run, view=view: view)
    return views


@pytest.mark.parametrize("names", [(), ("console",), ("console", "console")])
def test_the_run_directory_is_written_whatever_the_loggers(tmp_path, names):
    with some_trackers(tmp_path, *names) as trackers:
        trackers.log(1, {"a": 1.5})
        trackers.log_table(1, "t", ["x"], [[1]])
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1.5}]
    assert read_table(tmp_path, "t", 1) == (["x"], [[1]])
    assert read_status(tmp_path)["state"] == "finished"


def test_every_tracker_is_called_once(tmp_path, recorders):
    with some_trackers(tmp_path, "good", "good") as trackers:
        trackers.log(1, {"a": 2})
        trackers.log_table(1, "t", ("x",), [(1,)])
        trackers.close("early_stopped")
    assert recorders["good"].calls == [
        ("log", 1, {"a": 2}),
        ("log_table", 1, "t", ["x"], [[1]]),
        ("close", "early_stopped"),
    ]


def test_tensors_and_flags_become_numbers(tmp_path):
    with some_trackers(tmp_path) as trackers:
        trackers.log(1, {"a": np.float32(0.5), "b": np.int64(3), "c": True})
        trackers.log_table(1, "t", ["x"], [[np.float64(0.25)]])
    assert read_metrics(tmp_path) == [{"step": 1, "a": 0.5, "b": 3, "c": 1.0}]
    assert read_table(tmp_path, "t", 1)[1] == [[0.25]]


def test_a_metric_that_is_no_number_is_named(tmp_path):
    with some_trackers(tmp_path) as trackers, pytest.raises(TypeError, match="rollout/reward_table"):
        trackers.log(1, {"rollout/reward_table": [1, 2]})


def test_an_unknown_tracker_is_an_error_with_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean tensorboard"):
        some_trackers(tmp_path, "tensorbord")


@pytest.mark.parametrize("name", module.EXTRAS)
def test_a_missing_package_is_an_error_with_the_install_command(tmp_path, monkeypatch, name):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=rf"pip install -e '\.\[{name}\]'"):
        some_trackers(tmp_path, name)


def test_a_tracker_that_cannot_start_stops_the_run_and_closes_the_others(tmp_path, recorders, monkeypatch):
    def refuse(run):
        raise OSError("port taken")

    monkeypatch.setitem(module.TRACKERS, "refusing", refuse)
    with pytest.raises(RagenError, match=r"refusing cannot start \(OSError: port taken\)"):
        with some_trackers(tmp_path, "good", "refusing"):
            raise AssertionError("not reached")
    assert recorders["good"].calls == [("close", "failed")]
    status = read_status(tmp_path)
    assert status["state"] == "failed" and "port taken" in status["reason"]


@pytest.mark.parametrize("method", ["log", "log_table"])
def test_a_tracker_that_fails_later_is_dropped_with_one_warning(tmp_path, recorders, caplog, method):
    recorders["bad"].fails_at = method
    with caplog.at_level(logging.WARNING), some_trackers(tmp_path, "bad", "good") as trackers:
        for step in (1, 2, 3):
            trackers.log_table(step, "t", [], [])
            trackers.log(step, {"a": step})
    assert len(caplog.records) == 1
    assert "bad" in caplog.text and "no space left" in caplog.text
    assert recorders["bad"].calls[-1] == ("close", "failed")
    assert len(recorders["good"].calls) == 7
    assert len(read_metrics(tmp_path)) == 3
    assert read_status(tmp_path)["state"] == "finished"


def test_a_tracker_that_fails_to_close_does_not_fail_the_run(tmp_path, recorders, caplog):
    recorders["bad"].fails_at = "close"
    with some_trackers(tmp_path, "bad", "good"):
        pass
    assert recorders["bad"].calls == recorders["good"].calls == [("close", "finished")]
    assert len(caplog.records) == 1


def test_a_run_directory_that_cannot_be_written_stops_the_run(tmp_path):
    with pytest.raises(OSError), some_trackers(tmp_path) as trackers:
        (tmp_path / "metrics.jsonl").mkdir()
        trackers.log(1, {})


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ValueError("boom"), "failed", "ValueError: boom"),
        (KeyboardInterrupt(), "interrupted", "interrupted by the user"),
        (SystemExit(2), "failed", "SystemExit: 2"),
        (SystemExit(0), "finished", ""),
    ],
)
def test_the_status_says_how_the_run_ended(tmp_path, recorders, error, state, reason):
    with pytest.raises(type(error)), some_trackers(tmp_path, "good") as trackers:
        trackers.log(4, {})
        raise error
    status = read_status(tmp_path)
    assert (status["state"], status["reason"], status["step"]) == (state, reason, 4)
    assert recorders["good"].calls[-1] == ("close", state)


def test_a_status_given_before_the_end_stays(tmp_path):
    with some_trackers(tmp_path) as trackers:
        assert read_status(tmp_path)["state"] == "running"
        trackers.log(7, {})
        trackers.close("early_stopped", reason="no group was kept", early_stop="empty_filtered_steps")
    status = read_status(tmp_path)
    assert (status["state"], status["step"], status["early_stop"]) == ("early_stopped", 7, "empty_filtered_steps")
    assert status["reason"] == "no group was kept"


def test_a_resumed_run_continues_the_metrics_after_its_checkpoint(tmp_path):
    with some_trackers(tmp_path) as trackers:
        for step in (1, 2, 3):
            trackers.log(step, {"a": step})
    with some_trackers(tmp_path, resumed_step=2) as trackers:
        assert trackers.step == 2
        trackers.log(3, {"a": 3})
    assert [record["step"] for record in read_metrics(tmp_path)] == [1, 2, 3]


def test_a_new_run_in_an_old_folder_starts_with_no_metrics(tmp_path):
    with some_trackers(tmp_path) as trackers:
        trackers.log(1, {"a": 1})
    with some_trackers(tmp_path) as trackers:
        trackers.log(0, {"a": 0})
    assert read_metrics(tmp_path) == [{"step": 0, "a": 0}]


def test_trackers_are_told_about_the_run(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setitem(module.TRACKERS, "seeing", lambda run: seen.append(run) or Recorder())
    with some_trackers(tmp_path, "seeing", total_steps=9, resumed_step=4):
        pass
    config = config_of_loggers("seeing")
    assert seen == [RunFacts(config=config, path=tmp_path, total_steps=9, resumed_step=4)]


class OwnTracker:
    """A tracker as a user writes it: a file of its own below the run directory."""

    def __init__(self, run):
        self.folder = run.path / "trackers"
        self.folder.mkdir()

    def log(self, step, metrics):
        with open(self.folder / "seen.txt", "a") as file:
            print(step, *metrics.items(), file=file)

    def log_table(self, step, name, columns, rows): ...

    def close(self, status):
        (self.folder / "closed").write_text(status)


class Half:
    def __init__(self, run): ...

    def log(self, step, metrics): ...


class Plain(OwnTracker):
    def __init__(self): ...


def test_a_tracker_of_ones_own_is_named_by_its_path(tmp_path):
    with some_trackers(tmp_path, f"{__name__}:OwnTracker") as trackers:
        trackers.log(1, {"a": 0.5})
    assert (tmp_path / "trackers" / "seen.txt").read_text() == "1 ('a', 0.5)\n"
    assert (tmp_path / "trackers" / "closed").read_text() == "finished"


@pytest.mark.parametrize(
    ("name", "why"), [("Half", "the class lacks log_table, close"), ("Plain", "cannot be called with one argument")]
)
def test_a_tracker_that_is_none_is_refused_before_the_run(tmp_path, name, why):
    with pytest.raises(ConfigError, match=rf"trainer\.logger={__name__}:{name}: .*{why}.*It must be a class that"):
        some_trackers(tmp_path, f"{__name__}:{name}")
