"""The figure of a sweep.

Tested in tests/sweeps/test_report.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ragen.plotting.style import BLUE, GREY, ORANGE, clean, new_figure, save_figure, show_text
from ragen.studies.conditions import Condition, Curve, endings, interval_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vP*X"


def draw(conditions: Sequence[Condition], *, title: str, axis_name: str, out: Path) -> None:
    """Left: success against steps. Right: final and best success against the value."""
    figure = new_figure(12.5, 5.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    figure.suptitle(title, fontsize=12)
    draw_curves(left, conditions, axis_name)
    draw_values(right, conditions, axis_name)
    save_figure(figure, out, dpi=160)


def colours(count: int) -> list[Any]:
    """From dark to light in order of the values; viridis keeps its order for every eye and in grey."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.85 * index / max(1, count - 1)) for index in range(count)]


def draw_curves(axis: Axes, conditions: Sequence[Condition], axis_name: str) -> None:
    from matplotlib.ticker import MaxNLocator

    clean(axis, "Validation success during training", xlabel="training step", ylabel="validation success (share)")
    shown = [condition for condition in conditions if any(curve.steps for curve in condition.curves)]
    if not shown:
        show_text(axis, "no validation was logged")
        return
    for index, (condition, colour) in enumerate(zip(shown, colours(len(shown)), strict=True)):
        curves = [curve for curve in condition.curves if curve.steps]
        if len(curves) > 1:
            for curve in curves:
                axis.plot(curve.steps, curve.successes, color=colour, alpha=0.3, linewidth=0.9)
        steps, means = mean_curve(curves)
        rim = 1 - index / len(shown)  # so that a curve below an equal one can be seen
        axis.plot(
            steps,
            means,
            color=colour,
            linewidth=1.4 + 1.4 * rim,
            marker=MARKERS[index % len(MARKERS)],
            markersize=4 + 3 * rim,
            label=condition.value,
        )
        for curve in curves:
            if curve.outcome.status != "success":
                axis.plot(curve.steps[-1], curve.final, marker="x", markersize=11, markeredgewidth=2, color=colour)
    if any(curve.outcome.status != "success" and curve.steps for c in shown for curve in c.curves):
        axis.plot([], [], marker="x", linestyle="none", markersize=8, color=GREY, label="ended early")
    axis.set_ylim(-0.03, 1.03)
    axis.margins(x=0.03)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    names = axis.get_legend_handles_labels()[1]
    legend_below(axis, title=axis_name, ncols=min(len(names), 5))


def legend_below(axis: Axes, *, title: str, ncols: int) -> None:
    """Below the axes, where it covers no curve."""
    style = {"fontsize": 8.5, "title_fontsize": 8.5, "frameon": False}
    axis.legend(title=title, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=ncols, **style)


def mean_curve(curves: Sequence[Curve]) -> tuple[list[int], list[float]]:
    """The mean over seeds at the steps that all of them reached."""
    rows = [dict(zip(curve.steps, curve.successes, strict=True)) for curve in curves]
    steps = sorted(set.intersection(*(set(row) for row in rows)))
    return steps, [fmean(row[step] for row in rows) for step in steps]


def draw_values(axis: Axes, conditions: Sequence[Condition], axis_name: str) -> None:
    clean(axis, "Final and best success", xlabel=axis_name, ylabel="validation success (share)")
    kinds = {"final": (-0.12, BLUE, "o"), "best": (0.12, ORANGE, "D")}
    estimated = [(x, condition) for x, condition in enumerate(conditions) if condition.final]
    for kind, (shift, colour, marker) in kinds.items() if estimated else ():
        for x, condition in estimated:
            value = getattr(condition, kind)
            face = "white" if condition.collapsed else colour  # hollow: a regime that failed
            style = {"color": colour, "markerfacecolor": face, "markersize": 7, "elinewidth": 1.4, "capsize": 4}
            axis.errorbar([x + shift], [value.mean], yerr=[[value.below], [value.above]], fmt=marker, **style)
        axis.plot([], [], linestyle="none", marker=marker, markersize=7, color=colour, label=kind)
    for x, condition in enumerate(conditions):
        if condition.final is None:
            axis.text(x, 0.02, endings(condition), ha="center", va="bottom", color=GREY, rotation=90)
    axis.set_xticks(range(len(conditions)), [condition.value for condition in conditions])
    axis.set_xlim(-0.6, len(conditions) - 0.4)
    axis.set_ylim(-0.03, 1.03)
    if estimated:
        if any(condition.collapsed for condition in conditions):
            axis.plot([], [], "o", color=GREY, markerfacecolor="white", label="runs collapsed; mean of the others")
        legend_below(axis, title=interval_name(conditions), ncols=3)
