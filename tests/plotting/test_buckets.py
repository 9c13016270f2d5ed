"""The buckets of a step, picked from its metrics."""

import json
import math
from dataclasses import replace

import pytest

from ragen.plotting.buckets import analysis_steps, read_analysis
from ragen.plotting.gradient_figures import draw_summary, write_analysis
from ragen.plotting.history import read_run_dir
from ragen.tracking.rundir import RunDir
from tests.plotting.drawing import seven_files
from tests.plotting.synthetic import bucket_metrics


def test_the_summary_stands_in_where_no_step_has_buckets(run, tmp_path):
    whole = read_run_dir(run)
    history = replace(whole, steps={1: {"actor/lr": 1e-6}}, load_table=lambda step, name: None)
    assert analysis_steps(history) == ["summary"]
    write_analysis(read_analysis(history, "summary"), history.at("summary"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == seven_files("summary")
    metrics = json.loads((tmp_path / "gradient_analysis_metrics_step_summary.json").read_text())
    assert metrics["grad_norm/bucket_6/task"] == 4.8 and "_step" not in metrics
    assert (tmp_path / "gradient_analysis_bucket_rv_table_step_summary.csv").read_text() == "bucket,reward_std\n"


def test_a_bucket_without_noise_measures_leaves_those_of_the_others(tmp_path):
    """As a bucket of one group."""
    metrics = {
        name: value
        for name, value in bucket_metrics(1).items()
        if not (name.startswith("grad_norm/bucket_2/") and ("norm_" in name.split("/")[2] or "split_half" in name))
    }
    RunDir(tmp_path).log(1, metrics)
    analysis = read_analysis(read_run_dir(tmp_path), 1)
    intervals = analysis.intervals("task")
    assert intervals is not None and intervals[0] == pytest.approx((6.7 * 0.85, 6.7 * 1.15))
    assert all(map(math.isnan, intervals[1]))
    assert len(draw_summary(analysis).axes) == 4
