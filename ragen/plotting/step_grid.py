"""`ragen gradients steps`, or `python gradient_analysis/plot_icml_steps.py`: three steps in one figure."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ragen.errors import RagenError, reporting_errors
from ragen.files import read_object
from ragen.plotting.buckets import Analysis, pick_analysis
from ragen.plotting.gradient_figures import BUCKET_AXIS, NORM_AXIS, REGULARIZER_AXIS, STD_AXIS, draw_against_std
from ragen.plotting.style import BLUE, Points, bucket_ticks, clean, error_bars, label_points, new_figure, save_figure
from ragen.tracking.names import GRADIENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = ("step0", "step20", "step40")
"""Flag of each row, with the step it is of where the file does not tell another."""
EXPORTED = "gradient_analysis_metrics_step_*.json"

PROGRAM = "python gradient_analysis/plot_icml_steps.py"


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


def read_file(path: Path, flag: str) -> Analysis:
    """The analysis of a row, with the step that the content of its file or the name tells."""
    file = find_file(path, flag)
    content = read_object(file)
    # The export writes null for what is not finite.
    numbers = {name: math.nan if value is None else value for name, value in content.items()}
    metrics = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    in_name = re.search(r"_step_(\d+)\.json$", file.name)
    step = content.get("_step", in_name[1] if in_name else flag.removeprefix("step"))
    return pick_analysis(metrics, step)


def with_common_buckets(analyses: Sequence[Analysis]) -> list[Analysis]:
    """The analyses with the buckets that all of them have."""
    common = set.intersection(*({bucket.name for bucket in analysis.buckets} for analysis in analyses))
    if not common:
        counts = ", ".join(f"step {analysis.step}: {len(analysis.buckets)}" for analysis in analyses)
        raise RagenError(f"The three files have no bucket in common ({GRADIENTS}/bucket_*; {counts}).")
    return [replace(each, buckets=[bucket for bucket in each.buckets if bucket.name in common]) for each in analyses]


def set_log(axis: Axes, which: Literal["x", "y"], values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers; linear up to the smallest positive value where some are zero."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    positive = [value for value in values if value > 0]
    if not positive:
        return
    side = axis.xaxis if which == "x" else axis.yaxis
    scale = {"value": "log"} if len(positive) == len(values) else {"value": "symlog", "linthresh": min(positive)}
    (axis.set_xscale if which == "x" else axis.set_yscale)(**scale)
    if scale["value"] == "log":
        ratio = max(positive) / min(positive)
        # Within a decade LogLocator puts so many ticks that their numbers touch.
        ticks = LogLocator(subs=(1.0,) if ratio > 1000 else (1.0, 2.0, 5.0)) if ratio > 10 else MaxNLocator(5)
        side.set_major_locator(ticks)
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
    analyses = []
    for flag in ROWS:
        path = getattr(args, f"{flag}_dir")
        if path is None:
            path = data / args.mode / flag
            if not path.exists():
                raise RagenError(
                    f"--{flag}-dir is not given and {path} does not exist. Name the exports of three steps: "
                    "--step0-dir DIR --step20-dir DIR --step40-dir DIR (folders or gradient_analysis_metrics files). "
                    f"Each comes from a {args.mode.upper()} run: "
                    "ragen gradients plot --run-dir RUN --step N --output-dir DIR"
                )
        analyses.append(read_file(path, flag))
    labels = args.row_labels or [f"step {analysis.step}" for analysis in analyses]
    figure = draw_grid(labels, with_common_buckets(analyses))
    print(save_figure(figure, args.out, dpi=300))


def main(argv: Sequence[str] | None = None, *, data: Path, prog: str = PROGRAM) -> int:
    """`data` holds <mode>/step0, step20, step40 for rows that are not named."""
    parser = argparse.ArgumentParser(prog=prog, description="Draw three gradient analyses in one figure.")
    parser.add_argument("--mode", choices=["grpo", "ppo"], default="grpo", help=f"rows not named: {data}/<mode>/step0")
    for flag in ROWS:
        parser.add_argument(f"--{flag}-dir", type=Path, metavar="DIR", help=f"folder or file for the row of {flag}")
    parser.add_argument("--row-labels", nargs=len(ROWS), metavar="TEXT", help="labels (the steps the files tell)")
    parser.add_argument("--out", type=Path, default=Path("icml_step0_20_40_grid.png"), help="PNG file (%(default)s)")
    args = parser.parse_args(argv)
    return reporting_errors(lambda: plot(args, data))
