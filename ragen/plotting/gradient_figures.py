"""The figures and files of one gradient analysis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.files import finite, to_csv
from ragen.plotting import style
from ragen.plotting.buckets import COMPONENTS, Analysis
from ragen.plotting.history import Metrics, Step
from ragen.tracking.names import LOSSES, PREFILTER_GRADIENTS, Component, Measure
from ragen.tracking.rundir import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS: dict[str, str] = {"task": style.BLUE, "entropy": style.ORANGE, "kl": style.GREEN}
REGULARIZERS: tuple[Component, Component] = ("kl", "entropy")
BUCKET_AXIS = "reward-variance bucket (Q1 lowest)"
STD_AXIS = "reward std within a group"
INTERVAL = "95 % of other batches"
NORM_AXIS = "L2 norm of the gradient"
REGULARIZER_AXIS = "KL norm + entropy norm"


def draw_norms(analysis: Analysis) -> Figure:
    """Gradient norm of each term per bucket, above a table of what is in the buckets."""
    figure = style.new_figure(12.6, 5.8)
    grid = figure.add_gridspec(2, 3, height_ratios=[3.2, 1.2])
    axes = [figure.add_subplot(grid[0, column]) for column in range(3)]
    for axis, component in component_charts(axes, analysis, ylabel=NORM_AXIS):
        values, intervals = analysis.values(component), analysis.intervals(component)
        color = COLORS[component]
        style.draw_bars(axis, analysis.labels, values, color=color, intervals=intervals, interval_label=INTERVAL)
        if analysis.has("norm_debiased", component):
            debiased = analysis.measured("norm_debiased", component)
            positions = analysis.positions
            axis.plot(positions, debiased, "D", mfc="white", color="black", ms=5, clip_on=False, label="noise removed")
        if whole := analysis.whole[component]:
            axis.axhline(
                whole, color=style.GREY, linestyle="--", linewidth=1, label=f"all samples ({style.number(whole)})"
            )
            style.from_zero(axis)
        if axis.get_legend_handles_labels()[0]:
            # Above the data: the norms grow to the right, and labels stand on the bars.
            axis.set_ylim(top=axis.get_ylim()[1] * 1.22)
            axis.legend(fontsize=8, loc="upper left", frameon=False, ncols=2, columnspacing=1, handlelength=1.4)
    _draw_bucket_table(figure.add_subplot(grid[1, :]), analysis)
    return _titled(figure, "Gradient norm per reward-variance bucket", analysis)


def component_charts(axes: Iterable[Axes], analysis: Analysis, *, ylabel: str) -> Iterator[tuple[Axes, Component]]:
    """An axis for each term of the loss, with its title; one whose term has no gradient says why."""
    for axis, component in zip(axes, (*REGULARIZERS, "task"), strict=True):
        style.clean(axis, f"{COMPONENTS[component]} gradient", xlabel=BUCKET_AXIS, ylabel=ylabel)
        if analysis.is_on(component):
            yield axis, component
        else:
            style.show_text(axis, analysis.zero_reason(component))


def draw_losses(analysis: Analysis) -> Figure:
    """The terms of the actor's loss per bucket."""
    figure = style.new_figure(9.6, 6.6)
    policy, entropy, kl, total = figure.subplots(2, 2).flat
    for axis, name, title, color in (
        (policy, "policy", "policy loss", style.BLUE),
        (total, "total", "total loss", style.PURPLE),
    ):
        style.clean(axis, title, xlabel=BUCKET_AXIS, ylabel="loss")
        style.draw_bars(axis, analysis.labels, analysis.measured("loss", name), color=color)
    for axis, component in zip((kl, entropy), REGULARIZERS, strict=True):
        style.clean(axis, f"{COMPONENTS[component]} loss", xlabel=BUCKET_AXIS, ylabel="loss, with its coefficient")
        values = analysis.measured("loss", LOSSES[component])
        # A policy loss of exactly zero is a value; a term without loss and gradient is switched off.
        if any(values) or analysis.is_on(component):
            style.draw_bars(axis, analysis.labels, values, color=COLORS[component])
        else:
            style.show_text(axis, analysis.zero_reason(component))
    return _titled(figure, "Loss per reward-variance bucket", analysis)


def draw_reward_std(analysis: Analysis) -> Figure:
    """Mean reward std of each bucket, with its smallest and largest."""
    figure = style.new_figure(6.4, 4.2)
    axis = figure.subplots()
    style.clean(axis, "mean over the groups, whiskers: smallest and largest", xlabel=BUCKET_AXIS, ylabel=STD_AXIS)
    _draw_std_bars(axis, analysis)
    return _titled(figure, "Reward std per bucket", analysis)


def draw_normed(analysis: Analysis) -> Figure:
    """Gradient norms divided by the samples and by the tokens of their bucket, each on its own axis."""
    figure = style.new_figure(14.4, 4.2)
    for axis, component in component_charts(figure.subplots(1, 3), analysis, ylabel="norm / samples"):
        right = axis.twinx()
        right.set_ylabel("norm / tokens (hatched)")
        right.spines["top"].set_visible(False)
        sides: list[tuple[Axes, float, Measure, str]] = [
            (axis, -0.2, "per_sample", ""),
            (right, 0.2, "per_token", "////"),
        ]
        for side, offset, measure, hatch in sides:
            side.bar(
                [position + offset for position in analysis.positions],
                analysis.measured(measure, component),
                width=0.38,
                color=COLORS[component],
                alpha=0.9 if not hatch else 0.55,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
                label=measure,
            )
            style.from_zero(side, room=0.2)
        style.bucket_ticks(axis, analysis.labels)
        handles = [bar for side in (axis, right) for bar in side.get_legend_handles_labels()[0]]
        axis.legend(handles, ["per sample", "per token"], fontsize=8, loc="upper left", frameon=False, ncols=2)
    return _titled(figure, "Gradient norm per sample and per token", analysis)


def draw_summary(analysis: Analysis) -> Figure:
    """Reward std per bucket, then the norms against it; with noise measures also how alike two halves are."""
    has_noise = analysis.has("split_half_cosine", "task")
    figure = style.new_figure(10.4, 8.0) if has_noise else style.new_figure(13.2, 4.4)
    axes = figure.subplots(*(2, 2) if has_noise else (1, 3)).flat
    _draw_std_boxes(axes[0], analysis)
    style.clean(axes[1], "task gradient", xlabel=f"mean {STD_AXIS}", ylabel=NORM_AXIS)
    style.clean(axes[2], "regularizer gradients", xlabel=f"mean {STD_AXIS}", ylabel=REGULARIZER_AXIS)
    labels = draw_against_std(axes[1], axes[2], analysis)
    if has_noise:
        _draw_split_half(axes[3], analysis)
    _titled(figure, "Gradient analysis", analysis).draw_without_rendering()
    for axis, points in labels:
        style.label_points(axis, points)
    return figure


def draw_against_std(task_axis: Axes, other_axis: Axes, analysis: Analysis) -> list[tuple[Axes, style.Points]]:
    """The task norm and the sum of the regularizers' norms against the mean reward std of each bucket.

    Returns the points that `label_points` names once the figure is laid out.
    """
    labels = [(task_axis, _draw_points(task_axis, analysis, ["task"], color=style.BLUE))]
    regularizers: list[Component] = [component for component in REGULARIZERS if analysis.is_on(component)]
    if not regularizers:
        style.show_text(other_axis, "\n".join(map(analysis.zero_reason, REGULARIZERS)))
        return labels
    if len(regularizers) == 1:
        other_axis.set_ylabel(f"{COMPONENTS[regularizers[0]]} norm (the other is zero)")
    return [*labels, (other_axis, _draw_points(other_axis, analysis, regularizers, color=style.GREEN))]


def _draw_points(axis: Axes, analysis: Analysis, components: Sequence[Component], *, color: str) -> style.Points:
    """A point per bucket, hollow where noise is removed."""
    xs = analysis.values("reward_std_mean")
    ys = [sum(bucket[component] for component in components) for bucket in analysis.buckets]
    axis.plot(xs, ys, color=color, linewidth=1, alpha=0.35)
    axis.plot(xs, ys, "o", color=color, markersize=style.MARKER, label="norm")
    if intervals := analysis.intervals(*components):
        style.error_bars(axis, xs, ys, intervals, label=INTERVAL + ", summed" * (len(components) > 1))
        debiased = [
            sum(bucket.measured("norm_debiased", component) for component in components if bucket[component])
            for bucket in analysis.buckets
        ]
        axis.plot(xs, debiased, "D", mfc="white", color=color, ms=5, clip_on=False, label="sampling noise removed")
    style.from_zero(axis)
    axis.margins(x=0.1)
    if len(axis.get_legend_handles_labels()[0]) > 1:
        axis.set_ylim(top=axis.get_ylim()[1] * 1.2)
        axis.legend(fontsize=8, loc="upper left", frameon=False)
    return dict(zip(analysis.labels, zip(xs, ys, strict=True), strict=True))


def _draw_bucket_table(axis: Axes, analysis: Analysis) -> None:
    from matplotlib.transforms import Bbox

    axis.set_axis_off()
    rows = {
        "reward std, mean": [style.number(value) for value in analysis.values("reward_std_mean")],
        "reward std, min": [style.number(value) for value in analysis.values("reward_std_min")],
        "reward std, max": [style.number(value) for value in analysis.values("reward_std_max")],
        "groups": [f"{value:.0f}" for value in analysis.values("group_rv_count")],
        "samples": [f"{value:.0f}" for value in analysis.values("sample_count")],
    }
    table = axis.table(
        list(rows.values()),
        cellLoc="center",
        rowLabels=list(rows),
        colLabels=analysis.labels,
        bbox=Bbox.from_bounds(0.1, 0, 0.9, 1),
        edges="B",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)


def _draw_std_bars(axis: Axes, analysis: Analysis) -> None:
    means = analysis.values("reward_std_mean")
    style.draw_bars(axis, analysis.labels, means, color=style.BLUE, intervals=analysis.std_ranges)
    if not any(means):
        axis.text(0.5, 0.5, "0 in every bucket", transform=axis.transAxes, ha="center", color=style.GREY)


def _draw_std_boxes(axis: Axes, analysis: Analysis) -> None:
    """Box plots of the groups where the tables belong to the logged numbers, otherwise means with extremes."""
    if not all(bucket.has_true_table for bucket in analysis.buckets):
        style.clean(axis, "mean, smallest and largest", xlabel=BUCKET_AXIS, ylabel=STD_AXIS)
        _draw_std_bars(axis, analysis)
        return
    style.clean(axis, "groups of each bucket", xlabel=BUCKET_AXIS, ylabel=STD_AXIS)
    axis.boxplot(
        [bucket.group_stds for bucket in analysis.buckets],
        positions=analysis.positions,
        widths=0.6,
        showfliers=False,
        whis=(0, 100),
        patch_artist=True,
        boxprops={"facecolor": style.BLUE, "alpha": 0.3},
        medianprops={"color": "black"},
    )
    for position, bucket in enumerate(analysis.buckets):
        stds = sorted(bucket.group_stds)
        # Spread by rank, so that equal values stay visible.
        spread = [position + 0.4 * ((rank * 0.618) % 1 - 0.5) for rank in range(len(stds))]
        axis.plot(spread, stds, ".", color=style.BLUE, markersize=3, alpha=0.7)
    style.bucket_ticks(axis, analysis.labels)
    style.from_zero(axis)


def _draw_split_half(axis: Axes, analysis: Analysis) -> None:
    """The cosine between the gradients of two halves of a bucket: 1 is all signal, 0 all noise."""
    style.clean(
        axis,
        "split-half cosine: 0 is pure noise, 1 pure signal",
        xlabel=BUCKET_AXIS,
        ylabel="cosine between the gradients of two halves",
    )
    markers = {"task": ("o", 6), "entropy": ("s", 8), "kl": ("^", 5)}  # sizes that show one behind the other
    lows = [0.0]
    for component, name in COMPONENTS.items():
        if analysis.is_on(component) and analysis.has("split_half_cosine", component):
            values = analysis.measured("split_half_cosine", component)
            marker, size = markers[component]
            axis.plot(analysis.positions, values, marker=marker, ms=size, color=COLORS[component], label=name)
            lows += values
    axis.axhline(0, color="black", linewidth=0.8)
    style.bucket_ticks(axis, analysis.labels)
    axis.set_xlim(-0.5, len(analysis.labels) - 0.5)  # a bucket without halves keeps its room
    axis.set_ylim(min(low for low in lows if math.isfinite(low)) - 0.08, 1.22)
    axis.axhline(1, color=style.GREY, linewidth=0.8, linestyle=":")
    axis.legend(fontsize=8, loc="upper left", frameon=False, ncols=3)


def _titled(figure: Figure, title: str, analysis: Analysis) -> Figure:
    where = "latest values" if analysis.step == "summary" else f"step {analysis.step}"
    batch = " before the filter" if analysis.prefix == PREFILTER_GRADIENTS else ""
    figure.suptitle(f"{title}{batch}, {where}", fontsize=12, fontweight="bold")
    return figure


FIGURES: dict[str, Callable[[Analysis], Figure]] = {
    "summary": draw_summary,
    "plots": draw_norms,
    "loss_plots": draw_losses,
    "reward_std": draw_reward_std,
    "normed_grads": draw_normed,
}
"""Part of the file name -> what draws it."""


def write_analysis(analysis: Analysis, metrics: Metrics, folder: Path) -> list[Path]:
    """The seven files of a step."""
    start, end = "gradient_analysis", f"step_{analysis.step}"
    written = [
        style.save_figure(draw(analysis), folder / f"{start}_{name}_{end}.png") for name, draw in FIGURES.items()
    ]
    metrics_file = folder / f"{start}_metrics_{end}.json"
    write_atomic(metrics_file, metrics_json(metrics, analysis.step))
    table_file = folder / f"{start}_bucket_rv_table_{end}.csv"
    rows = [[bucket.name, std] for bucket in analysis.buckets for std in bucket.group_stds]
    write_atomic(table_file, to_csv(["bucket", "reward_std"], rows))
    return [*written, metrics_file, table_file]


def metrics_json(metrics: Metrics, step: Step) -> str:
    """Every metric of a step and, as _step, its number; what is not finite is null, which every JSON reader knows."""
    flat = finite(metrics)
    if step != "summary":
        flat["_step"] = step
    return json.dumps(flat, indent=2, sort_keys=True, allow_nan=False) + "\n"
