"""Three exported steps in one figure."""

import itertools
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.errors import RagenError
from ragen.plotting import step_grid
from ragen.plotting.buckets import pick_analysis
from ragen.plotting.step_grid import draw_grid, main, read_file, set_log, with_common_buckets
from ragen.plotting.style import new_figure
from tests.plotting.png import has_drawing
from tests.plotting.synthetic import STEPS, bucket_metrics

SCRIPT = Path(__file__).parents[2] / "gradient_analysis" / "plot_icml_steps.py"


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """One folder per step: an exported file, metrics.json with a step, and metrics.json without one."""
    folders = [tmp_path / name for name in ("a", "b", "c")]
    names = ["gradient_analysis_metrics_step_1.json", "metrics.json", "metrics.json"]
    for folder, name, step in zip(folders, names, STEPS, strict=True):
        folder.mkdir()
        content = bucket_metrics(step) | ({"_step": step} if step == 51 else {})
        (folder / name).write_text(json.dumps(content))
    return folders


def flags(paths: list[Path]) -> list[str]:
    return [text for flag, path in zip((0, 20, 40), paths, strict=True) for text in (f"--step{flag}-dir", str(path))]


def test_three_steps_make_a_figure_of_300_dpi(folders, tmp_path, capsys):
    out = tmp_path / "figures" / "grid.png"
    assert main([*flags(folders), "--mode", "ppo", "--out", str(out)], data=tmp_path) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert has_drawing(out)
    header = out.read_bytes()[:200]
    assert struct.unpack(">II", header[16:24]) == (3780, 3060)
    assert struct.unpack(">I", header[header.index(b"pHYs") + 4 :][:4]) == (11811,), "pixels per metre"


def test_a_row_is_labelled_by_its_real_step(folders):
    steps = [read_file(path, flag).step for path, flag in zip(folders, ("step0", "step20", "step40"), strict=True)]
    assert list(map(str, steps)) == ["1", "51", "40"], "from the name, from the content, from the flag"


def test_a_file_may_be_named_directly(folders):
    file = folders[0] / "gradient_analysis_metrics_step_1.json"
    assert read_file(file, "step40").buckets == pick_analysis(bucket_metrics(1), 1).buckets


def test_labels_can_be_given(folders, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(step_grid, "save_figure", lambda figure, out, dpi: drawn.append(figure))
    assert main([*flags(folders), "--row-labels", "A", "B", "C"], data=tmp_path) == 0
    assert [axis.texts[0].get_text() for axis in drawn[0].axes[::3]] == ["A", "B", "C"]


def test_several_exports_in_a_folder_are_listed(folders, tmp_path, capsys):
    (folders[0] / "gradient_analysis_metrics_step_51.json").write_text("{}")
    assert main(flags(folders), data=tmp_path) == 1
    error = capsys.readouterr().err
    assert "--step0-dir" in error and "step_1.json" in error and "step_51.json" in error


def test_missing_data_names_the_flags(tmp_path):
    result = subprocess.run([sys.executable, SCRIPT, "--mode", "ppo"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert "data/ppo/step0 does not exist" in result.stderr
    assert all(flag in result.stderr for flag in ("--step0-dir", "--step20-dir", "--step40-dir"))


def test_default_folders_are_used(tmp_path, monkeypatch):
    for step, name in zip(STEPS, ("step0", "step20", "step40"), strict=True):
        folder = tmp_path / "grpo" / name
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text(json.dumps(bucket_metrics(step)))
    drawn = []
    monkeypatch.setattr(step_grid, "draw_grid", lambda labels, analyses: drawn.append((labels, analyses)))
    monkeypatch.setattr(step_grid, "save_figure", lambda figure, out, dpi: out)
    assert main([], data=tmp_path) == 0
    ((labels, analyses),) = drawn
    assert labels == ["step 0", "step 20", "step 40"]
    assert [analysis.values("task")[5] for analysis in analyses] == [26, 13.4, 4.8]


def test_only_common_buckets_are_drawn():
    rows = [pick_analysis(bucket_metrics(step), step) for step in STEPS]
    short = {name: value for name, value in bucket_metrics(1).items() if "bucket_2" in name or "bucket_5" in name}
    first, *_ = with_common_buckets([*rows, pick_analysis(short, 1)])
    assert [bucket.name for bucket in first.buckets] == ["bucket_2", "bucket_5"]
    with pytest.raises(RagenError, match=r"no bucket in common .*step 51: 6, step 101: 6, step 7: 0"):
        with_common_buckets([*rows, pick_analysis({}, 7)])


def test_axes_hold_zeros_and_all_data(folders):
    file = folders[1] / "metrics.json"
    metrics = json.loads(file.read_text())
    metrics |= {f"grad_norm/bucket_1/reward_std_{k}": 0.0 for k in ("mean", "min", "max")}
    metrics["grad_norm/bucket_4/task"] = None
    file.write_text(json.dumps(metrics))
    rows = [read_file(path, "step0") for path in folders]
    axes = draw_grid(["a", "b", "c"], with_common_buckets(rows)).axes
    assert [axis.get_yscale() for axis in axes[::3]] == ["log", "symlog", "log"]
    assert [axis.get_xscale() for axis in axes[1::3]] == ["log", "symlog", "log"]
    bottom, top = axes[8].get_ylim()
    assert bottom == 0 and top > 2 * 1.3 * 1.05, "norms far above 0.1 are inside"
    assert [text.get_text() for text in axes[4].texts] == ["Q1", "Q2", "Q3", "Q5", "Q6"], (
        "a point that is unknown has none"
    )


def test_the_numbers_of_a_narrow_axis_do_not_touch():
    figure = new_figure(4.2, 3.4)
    axis, stds = figure.subplots(), [0.36, 0.41, 0.48, 0.508, 0.522, 0.547]
    axis.plot(stds, stds)
    set_log(axis, "x", stds)
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    labels = [label for at, label in zip(axis.get_xticks(), axis.get_xticklabels(), strict=True) if low <= at <= high]
    boxes = [label.get_window_extent().padded(2) for label in labels]
    assert len(boxes) >= 3
    assert not any(left.overlaps(right) for left, right in itertools.pairwise(boxes))


def test_a_file_that_is_no_metrics_is_named(tmp_path):
    (tmp_path / "metrics.json").write_text("[1, 2")
    with pytest.raises(RagenError, match=r"metrics.json"):
        read_file(tmp_path, "step0")
