"""Seven files per analysed step, and what they show."""

import csv
import json
import math

import pytest

from ragen.plotting.buckets import analysis_steps, read_analysis
from ragen.plotting.gradient_command import main
from ragen.plotting.gradient_figures import draw_norms, draw_reward_std, draw_summary
from ragen.plotting.history import read_run_dir
from ragen.tracking.rundir import RunDir
from tests.plotting.drawing import PNGS, seven_files, texts
from tests.plotting.png import has_drawing
from tests.plotting.synthetic import COLUMNS, bucket_metrics, fill, tables


def test_a_step_has_seven_files(drawn):
    assert {path.name for path in drawn.iterdir()} == seven_files(51)


@pytest.mark.parametrize("name", PNGS)
def test_a_figure_is_not_blank(drawn, name):
    assert has_drawing(drawn / f"gradient_analysis_{name}_step_51.png")


def test_the_metrics_are_flat_sorted_and_complete(drawn):
    text = (drawn / "gradient_analysis_metrics_step_51.json").read_text()
    metrics = json.loads(text)
    assert list(metrics) == sorted(metrics) and text.startswith('{\n  "_step": 51,\n  "actor/lr": 1e-06')
    assert metrics == {"_step": 51, "actor/lr": 1e-6, **bucket_metrics(51)}


def test_the_groups_are_listed_by_bucket(drawn):
    lines = (drawn / "gradient_analysis_bucket_rv_table_step_51.csv").read_text().splitlines()
    assert lines[0] == "bucket,reward_std"
    rows = [(row["bucket"], float(row["reward_std"])) for row in csv.DictReader(lines)]
    assert rows == [(row[0], row[2]) for table in tables(51).values() for row in table]
    assert len(rows) == 6 * 21


def test_a_term_that_is_off_is_said_to_be_off(tmp_path):
    run = RunDir(tmp_path)
    fill(run, kl=False, noise=False)
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    assert "KL is off\n(zero in every bucket)" in texts(draw_norms(analysis))
    assert draw_summary(analysis).axes[2].get_ylabel() == "entropy norm (the other is zero)"


def test_a_term_that_was_probed_and_has_no_gradient_is_not_called_off(tmp_path):
    """As KL at the first step, when the policy is its own reference."""
    RunDir(tmp_path).log(1, bucket_metrics(1, kl=False, noise=True))
    assert "KL is on, but zero in every bucket" in texts(draw_norms(read_analysis(read_run_dir(tmp_path), 1)))


def test_noise_measures_are_drawn_where_they_were_logged(run, tmp_path):
    with_noise = draw_summary(read_analysis(read_run_dir(run), 1))
    assert len(with_noise.axes) == 4
    assert with_noise.axes[3].get_title().startswith("split-half cosine")
    legend = with_noise.axes[1].get_legend()
    assert legend is not None
    assert [label.get_text() for label in legend.get_texts()] == [
        "norm",
        "sampling noise removed",
        "95 % of other batches",
    ]
    plain = RunDir(tmp_path)
    fill(plain, noise=False)
    without = draw_summary(read_analysis(read_run_dir(tmp_path), 1))
    assert len(without.axes) == 3 and without.axes[1].get_legend() is None


def test_no_axis_cuts_the_data(run):
    """Regularizer norms above 1, as late in training, are inside the axis."""
    history = read_run_dir(run)
    for step in analysis_steps(history):
        analysis = read_analysis(history, step)
        axis = draw_summary(analysis).axes[2]
        low, high = axis.get_ylim()
        sums = [ends[1] for ends in analysis.intervals("kl", "entropy") or []]
        assert low == 0 and max(sums) < high
    assert max(sums) > 1


def test_a_table_of_other_groups_is_not_drawn_as_boxes(run, tmp_path):
    own = draw_summary(read_analysis(read_run_dir(run), 1))
    assert own.axes[0].get_title() == "groups of each bucket"
    other = RunDir(tmp_path)
    other.log(1, bucket_metrics(1))
    for name, rows in tables(1).items():
        other.log_table(1, name, COLUMNS, [[bucket, group, std + 0.01] for bucket, group, std in rows])
    assert draw_summary(read_analysis(read_run_dir(tmp_path), 1)).axes[0].get_title() == "mean, smallest and largest"


def test_strange_values_do_not_stop_the_figures(tmp_path):
    run = RunDir(tmp_path / "run")
    metrics = bucket_metrics(1)
    metrics["grad_norm/bucket_2/task"], metrics["grad_norm/bucket_3/kl"] = math.nan, math.inf
    run.log(1, metrics)
    assert main(["--run-dir", str(run.path), "--output-dir", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == seven_files(1)
    exported = json.loads((tmp_path / "out" / "gradient_analysis_metrics_step_1.json").read_text())
    assert exported["grad_norm/bucket_2/task"] is None and exported["grad_norm/bucket_3/kl"] is None


def test_one_bucket_and_no_variance_can_be_drawn(tmp_path):
    """The figure of the reward std exists although every value is zero."""
    metrics = {name: value for name, value in bucket_metrics(101).items() if "/bucket_1/" in name}
    RunDir(tmp_path).log(1, metrics | {f"grad_norm/bucket_1/reward_std_{k}": 0.0 for k in ("mean", "min", "max")})
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    assert "0 in every bucket" in texts(draw_reward_std(analysis))
    assert "Q1" in texts(draw_summary(analysis))
