"""`python gradient_analysis/tabulate.py`: buckets as text."""

import subprocess
import sys
from pathlib import Path

import pytest

from ragen.plotting.gradient_table import ranks, spearman
from ragen.tracking.rundir import RunDir
from tests.plotting.synthetic import fill, log_run

PROGRAM = Path(__file__).parents[2] / "gradient_analysis" / "tabulate.py"


def test_ranks_and_rank_correlation():
    assert ranks([3, 1, 3]) == [2.5, 1, 2.5]
    assert spearman([1, 5, 9]) == pytest.approx(1)
    assert spearman([9, 5, 1]) == pytest.approx(-1)
    assert spearman([1, 3, 2]) == pytest.approx(0.5)
    assert spearman([2, 2, 2]) == 0


def test_every_bucket_has_a_row(tmp_path):
    fill(RunDir(tmp_path))
    shown = subprocess.run(
        [sys.executable, PROGRAM, str(tmp_path), "--step", "51"], capture_output=True, text=True, check=True
    ).stdout
    assert "grad_norm, step 51: gradient of the task term" in shown and "step 1:" not in shown
    assert all(f" Q{number} " in shown for number in range(1, 7)) and " all " in shown
    assert "rank correlation with the bucket: norm +" in shown


def test_a_bucket_without_an_interval_has_dashes(tmp_path):
    """One group has no halves, and tells nothing of its noise."""
    run, missing = RunDir(tmp_path), ("norm_low", "norm_high", "norm_debiased", "split_half_cosine")
    for step, metrics, _ in log_run():
        run.log(step, {name: value for name, value in metrics.items() if not any(one in name for one in missing)})
    shown = subprocess.run([sys.executable, PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert "nan" not in shown and "(their groups are too few for intervals)" in shown and "cosine –" in shown
