"""Figure, CSV and report, from run directories with known numbers."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from ragen.algorithms.statistics import Estimate, proportion_interval
from ragen.studies.conditions import (
    Condition,
    Curve,
    ListedRun,
    interval_name,
    read_conditions,
    share_levels,
)
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.run import Run
from ragen.sweeps.report import write_report
from ragen.tracking.rundir import RunDir

CONFIG = "es_manager: {val: {group_size: 1, env_configs: {tags: [CoordSokoban], n_groups: [100]}}}"
SUCCESS = Outcome(status="success", times={"train_time": 61.25}, wall_time=70.4, device="1xH100")
STOP, CAUSE = "reward_variance_collapse", "silence pays"
EARLY = Outcome(status="early_stopped", early_stop=STOP, cause=CAUSE, times={"train_time": 20.0})
FAIL = Outcome(status="fail", last_lines=("x",))
MISSING = Outcome(status="missing")


def make_run(folder: Path, value: str, seed: int, successes: dict[int, float]) -> Run:
    name = f"{value}-{seed}"
    run_dir = RunDir(folder / name)
    run_dir.write_config(CONFIG)
    for step, success in successes.items():
        run_dir.log(step, {"val-env/CoordSokoban/success": success, "val-env/CoordSokoban/non-zero/success": 1.0})
        run_dir.log(step + 1, {"actor/lr": 1.0})
    return Run(
        name=name,
        command=("x",),
        log=folder / "x.log",
        run_dir=folder / name,
        total_steps=20,
        value=value,
        seed=seed,
    )


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def figure_ink(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the pixels that are not white, and the size of the figure."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    return np.argwhere(pixels.min(axis=-1) < 0.95), np.array(pixels.shape[:2])


def test_two_seeds_have_an_interval_within_zero_and_one():
    runs = {"a": proportion_interval(4, 10), "b": proportion_interval(6, 10)}
    facts = {"outcome": Outcome(status="success"), "steps": [1], "num_episodes": 10, "num_levels": 10}
    curves = [
        Curve(run=ListedRun(name=name, run_dir=Path(name)), estimates=[found], **facts) for name, found in runs.items()
    ]
    two = Condition(value="0", curves=curves).final  # 0.1 * 12.706: wider than a share can be
    assert two is not None and (two.mean, two.low, two.high) == (0.5, 0.0, 1.0)
    assert Condition(value="0", curves=[]).final is None


def test_runs_share_their_levels_unless_each_has_a_validation_seed_of_its_own():
    assert share_levels(["123", "123", "123"]) and share_levels(["1", "2", "2"]) and share_levels(["1"])
    assert not share_levels(["1", "2", "3"])


def test_one_seed_has_the_interval_of_its_levels(tmp_path):
    """Four episodes of each of ten levels that all end alike are ten trials, not forty."""
    run = make_run(tmp_path, "0", 1, {0: 0.8})
    (run.run_dir / "config.yaml").write_text(CONFIG.replace("group_size: 1", "group_size: 4").replace("100", "10"))
    (condition,) = read_conditions([run], {run.name: SUCCESS})
    assert condition.final is not None
    assert (condition.final.low, condition.final.high) == pytest.approx((0.490, 0.943), abs=1e-3)
    assert condition.curves[0].num_episodes == 40
    assert interval_name([condition]) == "95 % intervals: one seed, over 10 validation levels"


def test_the_interval_that_a_run_logged_is_the_one_that_is_reported(tmp_path):
    run = make_run(tmp_path, "0", 1, {})
    tag = "val-env/CoordSokoban/success"
    RunDir(run.run_dir).log(5, {tag: 0.5, f"{tag}_low": 0.375, f"{tag}_high": 0.75})
    (condition,) = read_conditions([run], {run.name: SUCCESS})
    assert condition.final == Estimate(0.5, 0.375, 0.75)


def test_a_report_over_seeds(tmp_path):
    runs = [
        make_run(tmp_path, "0", 1, {0: 0.1, 10: 0.6, 20: 0.5}),
        make_run(tmp_path, "0", 2, {0: 0.1, 10: 0.4, 20: 0.6}),
        make_run(tmp_path, "0.1", 1, {0: 0.1, 10: 0.05}),
        make_run(tmp_path, "0.1", 2, {0: 0.1, 10: 0.07, 20: 0.03}),
    ]
    outcomes = {"0-1": SUCCESS, "0-2": SUCCESS, "0.1-1": EARLY, "0.1-2": SUCCESS}
    first, second = read_conditions(runs, outcomes)
    assert first.final is not None and first.best is not None and second.final is not None
    assert (first.final.mean, first.best.mean) == (0.55, 0.6)
    assert second.final.mean == 0.03 and math.isnan(second.final.low), "the mean of the run that did not stop early"
    assert second.collapse == proportion_interval(1, 2)
    assert "Student's t over 2 seeds" in interval_name([first, second])

    files = write_report(
        tmp_path / "kl_sweep_tiny",
        title="KL sweep, tiny",
        axis_name="kl_loss_coef",
        runs=runs,
        outcomes=outcomes,
        summary=Path("logs/kl_sweep_tiny.log"),
        baseline="0",
    )
    assert [file.name.removeprefix("kl_sweep_tiny_") for file in files] == [
        "report.md",
        "report.png",
        "report.csv",
        "curves.csv",
    ]
    text = files[0].read_text()
    assert "| 0 | 0.550 [0.000, 1.000] | 0.600 [0.502, 0.691] | 10, 20 | 0 of 2 | step 20 | 61.2 s |" in text
    assert f"| 0.1 | 0.030 | 0.100 | 0 | 1 of 2 | early stop at 11 ({STOP}: {CAUSE}), step 20 |" in text
    assert "is a failed regime" in text and "0.1: 1 of 2, 0.50 [0.09, 0.91]" in text
    # Seed 2 alone has a run that did not collapse on both sides: 0.03 - 0.6.
    assert "| 0.1 | -0.570 | - | - | -0.500 | " in text and "no verdict on the mean: runs collapsed" in text
    rows = read_csv(files[2])
    assert [row["status"] for row in rows] == ["success", "success", "early_stopped", "success"]
    assert (rows[0]["best_success"], rows[0]["best_step"], rows[0]["last_step"]) == ("0.6", "10", "21")
    assert (rows[2]["early_stop"], rows[2]["cause"], rows[2]["final_success"]) == (STOP, CAUSE, "0.05")
    points = read_csv(files[3])
    assert len(points) == 11
    assert points[1] == {"value": "0", "seed": "1", "step": "10", "val_success": "0.6", "val_episodes": "100"}

    ink, size = figure_ink(files[1])
    assert len(ink) > 5000, "the figure is not blank"
    assert (ink.min(axis=0) >= 1).all() and (ink.max(axis=0) < size - 1).all(), "nothing is cut at the edges"


def test_runs_without_numbers_have_their_place(tmp_path):
    runs = [make_run(tmp_path, value, 1, {}) for value in ("0", "0.1", "0.2")]
    runs.append(make_run(tmp_path, "0.3", 1, {0: 0.5}))
    outcomes = {"0-1": FAIL, "0.1-1": MISSING, "0.2-1": SUCCESS, "0.3-1": FAIL}
    names = {"title": "s", "axis_name": "v", "summary": Path("s.log"), "baseline": "0"}
    files = write_report(tmp_path / "s", runs=runs, outcomes=outcomes, **names)
    text = files[0].read_text()
    assert "| 0 | - | - | - | - | failed | - |" in text
    assert "| 0.1 | - | - | - | - | not run | - |" in text
    assert "| 0.3 | - | - | - | - | failed | - |" in text, "half a run says nothing about its value"
    assert "no run to estimate from" in text
    assert len(figure_ink(files[1])[0]) > 2000
