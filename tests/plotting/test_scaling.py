"""Runs of several sizes in one table and one figure."""

import math

import pytest

from ragen.cli import main
from ragen.errors import RagenError
from ragen.plotting.scaling import count_parameters, read_run, readable_ticks, short_count, size_in_name
from tests.trainer.runs import train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("scaling")
    changes = ("trainer.val_before_train=True", "trainer.total_training_steps=1", "trainer.test_freq=1")
    small = train(root / "small", *changes, "trainer.experiment_name=small", "trainer.save_freq=1").path
    large = train(root / "large", *changes, "trainer.experiment_name=large", "trainer.save_freq=-1").path
    text = (large / "config.yaml").read_text()
    (large / "config.yaml").write_text(text.replace("path: tiny", "path: org/Model-0.5B-Instruct"))
    return small, large


@pytest.mark.parametrize(
    ("name", "size"),
    [("Qwen/Qwen2.5-0.5B-Instruct", 5e8), ("SmolLM2-135M-Instruct", 135e6), ("a/b_1_5B_x", 1.5e9), ("tiny", None)],
)
def test_the_size_in_a_name(name, size):
    assert size_in_name(name) == size


def test_counts_are_short():
    assert [short_count(n) for n in (31_000, 494_032_768, 3.09e9, 7e9, None)] == [
        "31k",
        "494M",
        "3.1B",
        "7.0B",
        "unknown",
    ]


def test_labels_of_like_sizes_do_not_cover_each_other():
    assert readable_ticks([5e8, 4.9e8, 1.5e9, 7e9]) == [4.9e8, 1.5e9, 7e9]
    assert readable_ticks([5e8, 5e8]) == [5e8]


def test_a_run_is_read_with_its_size_and_interval(runs):
    small, large = map(read_run, runs)
    assert small.num_parameters == count_parameters(runs[0])
    assert 10_000 < small.num_parameters < 1_000_000
    assert large.num_parameters == 5e8
    assert small.steps == [0, 1]
    assert small.final.mean == pytest.approx(small.successes[-1])
    assert small.final.low <= small.final.mean <= small.final.high
    assert not math.isnan(small.final_score)


def test_one_table_and_one_figure(runs, tmp_path, capsys):
    assert main(["scaling", *map(str, runs), "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.index("small") < out.index("large")
    table = (tmp_path / "scaling.md").read_text()
    assert table.count("\n") == 4
    assert "| Model-0.5B-Instruct | 500M | large |" in table
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_validation_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"actor/lr":0.1}\n')
    with pytest.raises(RagenError, match="has no validation metrics"):
        read_run(tmp_path)
