"""Published numbers beside ours."""

from __future__ import annotations

import math
from pathlib import Path

from ragen.plotting.style import BLUE, GREY, clean, draw_bars, new_figure, save_figure
from ragen.reproduce.claim import Claim
from ragen.reproduce.records import Record
from ragen.tracking.console import counted


def draw(claim: Claim, record: Record, out: Path) -> Path:
    """Left what was published, where there are numbers; right what the runs gave, with intervals over seeds."""
    points = record.finding.points
    published = [point for point in points if point.published is not None]
    figure = new_figure(max(6.4, 0.9 * len(points) + 0.9 * len(published) + 2), 4.2)
    seeds = counted(record.num_seeds, "seed")
    figure.suptitle(f"{claim.name}: {record.finding.verdict} ({record.budget}, {seeds})", fontsize=11)
    axes = figure.subplots(1, 2 if published else 1, squeeze=False)[0]
    if published:
        clean(axes[0], "published", xlabel="", ylabel=claim.measured)
        values = [point.published for point in published if point.published is not None]
        draw_bars(axes[0], [wrapped(point.label) for point in published], values, color=GREY)
    clean(axes[-1], "ours", xlabel="", ylabel="" if published else claim.measured)
    estimates = [point.ours for point in points]
    ends = [(each.mean, each.mean) if math.isnan(each.low) else (each.low, each.high) for each in estimates]
    labels = [wrapped(point.label) for point in points]
    draw_bars(axes[-1], labels, [each.mean for each in estimates], color=BLUE, intervals=ends)
    return save_figure(figure, out, dpi=90)


def wrapped(label: str) -> str:
    """Words below each other, so that labels stand side by side."""
    return label.replace(" ", "\n")
