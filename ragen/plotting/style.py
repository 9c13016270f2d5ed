"""How our figures look: colours for all eyes, axes that hold all data, labels that do not cover each other."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.errors import RagenError, needing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, whose colours differ for colour-blind readers and in grey.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#666666"

BACKING = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}
"""Behind a text, so that lines do not strike it through."""

Interval = tuple[float, float]
Points = dict[str, tuple[float, float]]
"""Label -> where it stands on the axes."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches; it belongs to nobody's global state."""
    with needing_extra("plot", "Figures need matplotlib"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # it measures texts
    return figure


def save_figure(figure: Figure, path: Path, *, dpi: int = 200) -> Path:
    """Write a PNG that appears whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(temporary, format="png", dpi=dpi)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RagenError(f"{path} cannot be written: {error.strerror}. Give another file (--help).") from error
    return path


def show_text(axis: Axes, text: str) -> None:
    """Words instead of a chart that has nothing to show."""
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color=GREY, fontsize=10)
    axis.set(xticks=[], yticks=[], xlabel="", ylabel="")
    axis.spines[:].set_visible(False)


def number(value: float) -> str:
    """Three digits, short: 0.0431, 26, 1.34e-4"""
    text = f"{value:.3g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.2e}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def clean(axis: Axes, title: str, *, xlabel: str, ylabel: str) -> None:
    """Title, axis labels and a light grid behind the data."""
    axis.set_title(title, fontsize=11)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.set_axisbelow(True)
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def from_zero(axis: Axes, *, room: float = 0.12) -> None:
    """Limits of the y axis that hold zero and all data, with room for labels beyond the data."""
    low, high = axis.dataLim.y0, axis.dataLim.y1
    low, high = min(low, 0.0) if math.isfinite(low) else 0.0, max(high, 0.0) if math.isfinite(high) else 0.0
    span = (high - low) or 1.0
    axis.set_ylim(low - room * span if low < 0 else 0.0, high + room * span if high > 0 or low == 0 else 0.0)
    axis.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)


def draw_bars(
    axis: Axes,
    labels: Sequence[str],
    values: Sequence[float],
    *,
    color: str,
    intervals: Sequence[Interval] | None = None,
    interval_label: str = "",
) -> None:
    """Bars with their values written beyond them, and the intervals where they are known."""
    positions = range(len(values))
    axis.bar(positions, values, width=0.72, color=color, alpha=0.9, linewidth=0)
    if intervals:
        error_bars(axis, positions, values, intervals, label=interval_label)
    bucket_ticks(axis, labels)
    is_crowded = len(values) > 8
    from_zero(axis, room=0.25 if is_crowded else 0.12)
    for position, value in enumerate(values):
        low, high = intervals[position] if intervals else (value, value)
        is_down = value < 0
        axis.annotate(
            number(value),
            (position, (min(value, low) if is_down else max(value, high)) if math.isfinite(value) else 0.0),
            xytext=(0, -3 if is_down else 3),
            textcoords="offset points",
            ha="center",
            va="top" if is_down else "bottom",
            fontsize=8,
            rotation=90 if is_crowded else 0,
            bbox=BACKING,
            zorder=4,
        )
    if any(value < 0 for value in values):
        axis.axhline(0, color="black", linewidth=0.8)


def bucket_ticks(axis: Axes, labels: Sequence[str]) -> None:
    """The names of the buckets below the axis; small where there are many."""
    axis.set_xticks(range(len(labels)), labels, fontsize=10 if len(labels) <= 8 else 7)


def error_bars(
    axis: Axes, positions: Sequence[float], values: Sequence[float], intervals: Sequence[Interval], *, label: str
) -> None:
    """Black whiskers."""
    # Matplotlib wants lengths; rounding may put a value just outside its interval.
    below = [max(value - low, 0.0) for value, (low, _) in zip(values, intervals, strict=True)]
    above = [max(high - value, 0.0) for value, (_, high) in zip(values, intervals, strict=True)]
    axis.errorbar(
        positions, values, yerr=[below, above], fmt="none", ecolor="black", elinewidth=1, capsize=3, label=label
    )


def label_points(axis: Axes, points: Points) -> None:
    """Write the name of each point beside it, where it covers no marker, no whisker end, no legend and no other text.

    Neighbours whose markers touch share one text: Q1-Q3. Call it when the layout is final,
    after `figure.draw_without_rendering()`.
    """
    figure = axis.get_figure(root=True)
    assert figure is not None
    scale = figure.dpi / 72  # pixels per point
    drawn = _drawn_points(axis)
    legend = axis.get_legend()
    taken = [legend.get_window_extent()] if legend else []
    texts = [text for text, point in points.items() if all(map(math.isfinite, point))]
    if not texts:
        return
    pixels = axis.transData.transform([points[text] for text in texts])
    for group in _touching((pixels / scale).tolist()):
        first, middle, last = (texts[group[index]] for index in (0, len(group) // 2, -1))
        text = first if first == last else f"{first}-{last}"
        style = {"ha": "center", "va": "center", "fontsize": 9, "bbox": BACKING}
        label = axis.annotate(text, points[middle], (0, 0), textcoords="offset points", **style)
        size = label.get_window_extent()
        for spot in SPOTS:
            box = size.translated(spot[0] * scale, spot[1] * scale)
            is_inside = axis.bbox.contains(*box.min) and axis.bbox.contains(*box.max)
            is_free = not any(box.overlaps(other) for other in taken)
            if is_inside and is_free and not any(box.padded(5).contains(*point) for point in drawn):
                label.set_position(spot)
                taken.append(box)
                if math.hypot(*spot) > CLOSE:
                    axis.annotate("", points[middle], spot, textcoords="offset points", arrowprops=LEADER)
                break


def _drawn_points(axis: Axes) -> list[Sequence[float]]:
    """Markers and points along the whiskers, in pixels."""
    from matplotlib.collections import LineCollection

    paths = [line.get_xydata() for line in axis.lines]
    for whiskers in axis.collections:
        if isinstance(whiskers, LineCollection):
            for start, end in filter(len, whiskers.get_segments()):  # empty where a value is NaN
                paths.append([start + part / 8 * (end - start) for part in range(9)])
    return [point for path in paths for point in axis.transData.transform(path).tolist()]


def _touching(positions: Sequence[Sequence[float]]) -> list[list[int]]:
    """Runs of points, in their order, that are less than a marker apart: [[0, 0], [5, 0], [40, 0]] -> [[0, 1], [2]]"""
    groups: list[list[int]] = []
    for index, position in enumerate(positions):
        if index and math.dist(position, positions[index - 1]) < MARKER:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


MARKER = 7
"""Diameter of a marker, in points."""
CLOSE = 14
"""Points from its marker up to which a label needs no line to it."""
LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkA": 6, "shrinkB": 4}
SPOTS = [
    (distance * math.cos(math.radians(angle)), distance * math.sin(math.radians(angle)))
    for distance in (13, 17, 22, 28, 36)
    # Whiskers go straight up and down, so those spots come last.
    for angle in (135, 45, 180, 0, 225, 315, 90, 270)
]
"""Where a label may stand, in points from its point, best first."""
