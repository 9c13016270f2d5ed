"""The configuration of a run."""

from ragen.view.reading.settings import at, read_settings
from tests.view.runs import write_run


def test_a_changed_configuration_is_read_again(tmp_path):
    assert read_settings(tmp_path) == {}
    write_run(tmp_path)
    assert at(read_settings(tmp_path), "trainer", "total_training_steps") == 10
    (tmp_path / "config.yaml").write_text("trainer: {total_training_steps: 300}\n")
    assert at(read_settings(tmp_path), "trainer", "total_training_steps") == 300


def test_a_key_below_something_else_is_nothing():
    assert at({"a": [1]}, "a", "b", "c") is None
