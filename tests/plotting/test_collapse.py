"""Collapse metrics over training."""

import subprocess
import sys
from pathlib import Path

import pytest

from ragen.cli import main as ragen
from ragen.errors import RagenError
from ragen.plotting.collapse import draw_information, draw_validation, plot_collapse, series
from ragen.plotting.style import new_figure
from ragen.tracking.rundir import RunDir
from tests.plotting.png import has_drawing
from tests.plotting.synthetic import fill

SCRIPT = Path(__file__).parents[2] / "gradient_analysis" / "plot_collapse.py"


def test_the_figure_is_written_into_the_run(tmp_path):
    fill(RunDir(tmp_path))
    result = subprocess.run([sys.executable, SCRIPT, "--run-dir", tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path / 'collapse.png'}\n"
    assert has_drawing(tmp_path / "collapse.png")


def test_one_sample_set_and_no_validation_are_enough(tmp_path):
    run = RunDir(tmp_path)
    for step in (1, 5, 10):
        run.log(step, {"collapse_first_turn_sample/mi_estimate": -0.01 * step})
    assert has_drawing(plot_collapse(tmp_path, tmp_path / "out" / "collapse.png"))


def test_validation_has_one_line_for_each_environment():
    rest = ("non-zero/success", "success_unseen", "success_low", "success_high")
    steps = {0: {"val-env/A/success": 0.5, "val-env/B/success": 0.25, **{f"val-env/A/{name}": 1.0 for name in rest}}}
    axis = new_figure(4, 3).subplots()
    draw_validation(axis, steps)
    assert [line.get_label() for line in axis.get_lines()] == ["A", "B"]


def test_a_bound_near_the_estimate_is_drawn_and_a_far_one_written():
    def labels(bound: float) -> list[str]:
        axis = new_figure(4, 3).subplots()
        name = "collapse_first_turn_sample"
        draw_information(axis, {1: {f"{name}/mi_estimate": 0.5, f"{name}/mi_upper_bound": bound}})
        return [str(line.get_label()) for line in axis.lines]

    assert labels(1.5) == ["first turns", "upper bound, first turns"]
    assert labels(4.16) == ["first turns, at most 4.16"]


def test_a_single_step_is_seen_where_it_stands(tmp_path, monkeypatch):
    """Every entry of a legend has a mark, though one point makes no line, and steps are whole and those of the run."""
    run = RunDir(tmp_path)
    measures = ("mi_estimate", "mi_upper_bound", "reasoning_entropy_est", "conditional_entropy_est")
    ranks = ("retrieval_accuracy", "retrieval_chance_level")
    for step in range(0, 41, 10):
        run.log(step, {"val-env/A/success": 0.5})
    run.log(41, {f"collapse_first_turn_sample/{name}": 0.5 for name in (*measures, *ranks)})
    figures = []
    monkeypatch.setattr("ragen.plotting.style.save_figure", lambda figure, out: figures.append(figure) or out)
    plot_collapse(tmp_path, tmp_path / "collapse.png")
    for axis in figures[0].axes:
        assert [line for line in axis.lines if len(line.get_xdata()) < 2 and line.get_marker() == "None"] == []
        assert all(line.get_markersize() == 4 for line in axis.lines if line.get_marker() == "o")
        assert axis.get_xlim()[0] < 0 and axis.get_xlim()[1] > 41
        assert all(float(tick).is_integer() for tick in axis.get_xticks())


def test_a_series_skips_steps_that_did_not_log_it():
    assert series({2: {"a": 1.0}, 1: {"b": 3.0}, 0: {"a": 2.0}}, "a") == ([0, 2], [2.0, 1.0])


def test_a_run_without_collapse_metrics_says_so(tmp_path):
    RunDir(tmp_path).log(1, {"actor/lr": 1.0})
    with pytest.raises(RagenError, match="compute_freq above 0"):
        plot_collapse(tmp_path, tmp_path / "collapse.png")


def test_ragen_collapse_is_the_script(tmp_path, capsys):
    RunDir(tmp_path).log(1, {"collapse_first_turn_sample/mi_estimate": 0.5})
    for run in (["--run-dir", str(tmp_path)], [str(tmp_path)]):
        assert ragen(["collapse", *run]) == 0
        assert capsys.readouterr().out == f"{tmp_path / 'collapse.png'}\n"
