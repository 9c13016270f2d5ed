"""The command that draws: which steps, and what it says when there is nothing to draw."""

import pytest

from ragen.cli import main as ragen
from ragen.plotting.buckets import read_analysis
from ragen.plotting.gradient_command import choose_steps, main
from ragen.plotting.gradient_figures import draw_reward_std
from ragen.plotting.history import read_run_dir
from ragen.tracking.rundir import RunDir
from tests.plotting.drawing import seven_files
from tests.plotting.synthetic import COLUMNS, bucket_metrics, tables


def test_steps_are_listed(run, capsys):
    assert main(["--wandb-path", str(run), "--list-steps"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "my run: 3 gradient analyses",
        "  step 1: 6 buckets",
        "  step 51: 6 buckets",
        "  step 101: 6 buckets",
    ]


def test_a_step_without_analysis_is_an_error_that_lists_the_others(run, tmp_path, capsys):
    assert main(["--run-dir", str(run), "--step", "2", "3", "--output-dir", str(tmp_path)]) == 1
    assert "--step 2 3: no analysis there. Available: 1, 51, 101." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_missing_step_among_others_is_named(capsys):
    assert choose_steps([1, 51, 101], [101, 2, 1]) == [1, 101]
    assert "no analysis at step 2. Available: 1, 51, 101." in capsys.readouterr().err


def test_a_run_without_buckets_says_how_to_get_them(tmp_path, capsys):
    RunDir(tmp_path).log(1, {"grad_norm/bucket_1/task": 0.0, "grad_norm/all/task": 1.0})
    assert main(["--run-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "no bucket metrics" in error and "only grad_norm/all" in error and "gradient_analysis_mode=True" in error


def test_the_batch_before_the_filter_has_figures_of_its_own(tmp_path):
    run = RunDir(tmp_path / "run")
    run.log(1, bucket_metrics(1) | bucket_metrics(1, prefix="grad_norm_prefilter", kl=False))
    for name, rows in tables(1, "grad_norm_prefilter").items():
        run.log_table(1, name, COLUMNS, rows)
    assert main(["--run-dir", str(run.path), "--prefilter", "--output-dir", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out" / "prefilter").iterdir()} == seven_files(1)
    title = draw_reward_std(read_analysis(read_run_dir(run.path), 1, "grad_norm_prefilter")).get_suptitle()
    assert title == "Reward std per bucket before the filter, step 1"


def test_ragen_gradients_is_the_three_scripts(run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ragen(["gradients", "plot", "--run-dir", str(run), "--list-steps"]) == 0
    assert "step 51: 6 buckets" in capsys.readouterr().out
    assert ragen(["gradients", "table", str(run), "--step", "51"]) == 0
    assert "51" in capsys.readouterr().out
    assert ragen(["gradients", "table", "--run-dir", str(run), "--step", "51"]) == 0
    assert "51" in capsys.readouterr().out
    assert ragen(["gradients", "plot", "--list-steps", str(run)]) == 0
    assert "step 51: 6 buckets" in capsys.readouterr().out
    for part in ("table", "plot"):
        with pytest.raises(SystemExit):
            ragen(["gradients", part])
        assert "one of the arguments" in capsys.readouterr().err
    assert ragen(["gradients", "steps"]) == 1
    assert "ragen gradients plot --run-dir RUN --step N" in capsys.readouterr().err
