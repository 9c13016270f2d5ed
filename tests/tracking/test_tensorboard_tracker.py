"""What TensorBoard shows is what was logged."""

import pytest

from tests.tracking.trackers import some_trackers

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read_events(path):
    events = event_accumulator.EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    return events


def test_scalars_lie_at_their_training_step(tmp_path):
    with some_trackers(tmp_path, "tensorboard") as trackers:
        trackers.log(0, {"val-env/A/success": 0.25})
        trackers.log(10, {"val-env/A/success": 0.5, "actor/lr": 1e-6})
    events = read_events(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("val-env/A/success")] == [(0, 0.25), (10, 0.5)]
    assert [e.step for e in events.Scalars("actor/lr")] == [10]


def test_a_step_is_on_the_disk_before_the_run_ends(tmp_path):
    with some_trackers(tmp_path, "tensorboard") as trackers:
        trackers.log(1, {"a": 1.0})
        assert [e.step for e in read_events(tmp_path).Scalars("a")] == [1]


def test_a_resumed_run_shows_each_step_once(tmp_path):
    with some_trackers(tmp_path, "tensorboard") as trackers:
        for step in (1, 2, 3):
            trackers.log(step, {"a": 1.0})
    with some_trackers(tmp_path, "tensorboard", resumed_step=1) as trackers:
        for step in (2, 3):
            trackers.log(step, {"a": 2.0})
    assert [(e.step, e.value) for e in read_events(tmp_path).Scalars("a")] == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_tables_are_shown_as_text_whatever_the_model_wrote(tmp_path):
    with some_trackers(tmp_path, "tensorboard") as trackers:
        trackers.log_table(3, "val/generations", ["reply", "score"], [["a|b\nc \ud800", 0.5]])
        trackers.log(3, {"a": 1.0})
    events = read_events(tmp_path)
    (event,) = events.Tensors("val/generations/text_summary")
    assert event.step == 3
    text = event.tensor_proto.string_val[0].decode()
    assert text == "| reply | score |\n| --- | --- |\n| a\\|b<br>c ? | 0.5 |"
    assert [e.step for e in events.Scalars("a")] == [3], "the tracker was not dropped"
