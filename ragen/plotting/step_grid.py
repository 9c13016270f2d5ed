"""`python gradient_analysis/plot_icml_steps.py`: the gradient analyses of three steps in one figure."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragen.errors import RagenError, reporting_errors
from ragen.files import read_object
from ragen.plotting.buckets import Analysis, pick_bucket
from ragen.plotting.gradient_figures import BUCKET_AXIS, NORM_AXIS, REGULARIZER_AXIS, STD_AXIS, draw_against_std
from ragen.plotting.history import Metrics
from ragen.plotting.style import BLUE, Points, bucket_ticks, clean, error_bars, label_points, new_figure, save_figure
from ragen.tracking.names import ALL_SAMPLES, GRADIENTS, numbered_buckets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = {"step0": "step 0", "step20": "step 20", "step40": "step 40"}
"""Flag of a row -> its label where the file does not tell the step."""
EXPORTED = "gradient_analysis_metrics_step_*.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The metrics of one row of the figure."""

    label: str
    metrics: Metrics


def find_file(path: Path, flag: str) -> Path:
    """The metrics file of a row: the file itself, metrics.json of a folder, or the one exported file in it."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise RagenError(f"--{flag}-dir: {path} does not exist. Give a folder with metrics.json or {EXPORTED}.")
    if (path / "metrics.json").exists():
        return path / "metrics.json"
    files = sorted(path.glob(EXPORTED))
    if len(files) == 1:
        return files[0]
    if files:
        listed = "\n  ".join(map(str, files))
        raise RagenError(f"--{flag}-dir: {path} holds several steps. Give one of these files:\n  {listed}")
    raise RagenError(f"--{flag}-dir: {path} holds neither metrics.json nor {EXPORTED}.")


def read_row(path: Path, flag: str) -> Row:
    """The metrics of a file, labelled by the step that its content or its name tells."""
    file = find_file(path, flag)
    content = read_object(file)
    # The export writes null for what is not finite.
    numbers = {name: math.nan if value is None else value for name, value in content.items()}
    metrics = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    in_name = re.search(r"_step_(\d+)\.json$", file.name)
    step = content.get("_step", in_name and in_name[1])
    return Row(label=ROWS[flag] if step is None else f"step {step}", metrics=metrics)


def read_analyses(rows: Sequence[Row]) -> list[Analysis]:
    """One analysis per row, with the buckets that all rows have."""
    per_row = [numbered_buckets(row.metrics, GRADIENTS) for row in rows]
    common = [name for name in per_row[0] if all(name in names for names in per_row)]
    if not common:
        counts = ", ".join(f"{row.label}: {len(names)}" for row, names in zip(rows, per_row, strict=True))
        raise RagenError(f"The three files have no bucket in common ({GRADIENTS}/bucket_*; {counts}).")
    return [
        Analysis(
            step="summary",
            prefix=GRADIENTS,
            buckets=[pick_bucket(row.metrics, GRADIENTS, name) for name in common],
            whole=pick_bucket(row.metrics, GRADIENTS, ALL_SAMPLES),
        )
        for row in rows
    ]


def set_log(axis: Axes, which: Literal["x", "y"], values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers; linear up to the smallest positive value where some are zero."""
    from matplotlib.ticker import LogLocator, NullFormatter

    positive = [value for value in values if value > 0]
    if not positive:
        return
    side = axis.xaxis if which == "x" else axis.yaxis
    scale = {"value": "log"} if len(positive) == len(values) else {"value": "symlog", "linthresh": min(positive)}
    (axis.set_xscale if which == "x" else axis.set_yscale)(**scale)
    if scale["value"] == "log":
        is_wide = max(positive) > 1000 * min(positive)
        side.set_major_locator(LogLocator(subs=(1.0,) if is_wide else (1.0, 2.0, 5.0)))
    side.set_major_formatter("{x:g}")
    side.set_minor_formatter(NullFormatter())


def draw_stds(axis: Axes, analysis: Analysis) -> None:
    means = analysis.values("reward_std_mean")
    axis.plot(analysis.positions, means, "o", color=BLUE, markersize=6)
    error_bars(axis, analysis.positions, means, analysis.std_ranges, label="")
    bucket_ticks(axis, analysis.labels)
    set_log(axis, "y", [*means, *(low for low, _ in analysis.std_ranges)])
    if axis.get_yscale() != "log":
        axis.set_ylim(bottom=0)


def draw_grid(labels: Sequence[str], analyses: Sequence[Analysis]) -> Figure:
    """Rows are steps; columns are the reward std, the task norm and the regularizers' norm."""
    figure = new_figure(12.6, 3.4 * len(analyses))
    axes = figure.subplots(len(analyses), 3, squeeze=False)
    labels_of: list[tuple[Axes, Points]] = []
    for row, (label, analysis) in enumerate(zip(labels, analyses, strict=True)):
        std_axis, task_axis, other_axis = axes[row]
        is_last = row == len(analyses) - 1
        titles = ("reward std", "task gradient", "regularizer gradients") if row == 0 else ("", "", "")
        below = f"mean {STD_AXIS}" if is_last else ""
        clean(std_axis, titles[0], xlabel=BUCKET_AXIS if is_last else "", ylabel=STD_AXIS)
        std_axis.annotate(
            label, (-0.3, 0.5), xycoords="axes fraction", rotation=90, va="center", fontsize=12, fontweight="bold"
        )
        draw_stds(std_axis, analysis)
        clean(task_axis, titles[1], xlabel=below, ylabel=NORM_AXIS)
        clean(other_axis, titles[2], xlabel=below, ylabel=REGULARIZER_AXIS)
        found = draw_against_std(task_axis, other_axis, analysis)
        for axis, _ in found:
            set_log(axis, "x", analysis.values("reward_std_mean"))
        labels_of += found
    figure.draw_without_rendering()
    for axis, points in labels_of:
        label_points(axis, points)
    return figure


def plot(args: argparse.Namespace, data: Path) -> None:
    rows = []
    for flag in ROWS:
        path = getattr(args, f"{flag}_dir")
        if path is None:
            path = data / args.mode / flag
            if not path.exists():
                raise RagenError(
                    f"--{flag}-dir is not given and {path} does not exist. Name the exports of three steps: "
                    "--step0-dir DIR --step20-dir DIR --step40-dir DIR (folders or gradient_analysis_metrics files). "
                    f"Each comes from a {args.mode.upper()} run: "
                    "python gradient_analysis/plot_gradient_analysis.py --run-dir RUN --step N --output-dir DIR"
                )
        rows.append(read_row(path, flag))
    figure = draw_grid(args.row_labels or [row.label for row in rows], read_analyses(rows))
    print(save_figure(figure, args.out, dpi=300))


def main(argv: Sequence[str] | None = None, *, data: Path) -> int:
    """`data` holds <mode>/step0, step20, step40 for rows that are not named."""
    parser = argparse.ArgumentParser(
        prog="python gradient_analysis/plot_icml_steps.py", description="Draw three gradient analyses in one figure."
    )
    parser.add_argument("--mode", choices=["grpo", "ppo"], default="grpo", help=f"rows not named: {data}/<mode>/step0")
    for flag, label in ROWS.items():
        parser.add_argument(f"--{flag}-dir", type=Path, metavar="DIR", help=f"folder or file for the row of {label}")
    parser.add_argument("--row-labels", nargs=len(ROWS), metavar="TEXT", help="labels (the steps the files tell)")
    parser.add_argument("--out", type=Path, default=Path("icml_step0_20_40_grid.png"), help="PNG file (%(default)s)")
    args = parser.parse_args(argv)
    return reporting_errors(lambda: plot(args, data))
