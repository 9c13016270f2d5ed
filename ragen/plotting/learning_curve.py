"""`ragen plot RUN`: validation success against training steps, with intervals and reference lines."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.algorithms.statistics import Estimate
from ragen.errors import MissingExtra, RagenError
from ragen.files import read_object
from ragen.plotting.style import save_figure
from ragen.tracking.rundir import read_metrics
from ragen.tracking.validation import GREEDY, SAMPLED, read_validation, success_of_tag

SERIES = {
    "sampled": (SAMPLED, ""),
    "sampled, unseen levels": (SAMPLED, "unseen"),
    "greedy": (GREEDY, ""),
    "greedy, unseen levels": (GREEDY, "unseen"),
}
"""Legend -> rollout and kind of levels."""
COLORS = {"sampled": "#1f6fb4", "greedy": "#d1711a", "random policy": "#888888", "solver": "#3a8f4d"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Success of one way of replying, step by step."""

    name: str
    steps: list[int]
    estimates: list[Estimate]


def read_curves(records: Sequence[Mapping[str, Any]], tag: str, num_levels: int) -> list[Curve]:
    """The validation curves of a tag; that of unseen levels only where a validation has both kinds."""
    kinds = (f"{SAMPLED}/{tag}/levels_seen", f"{SAMPLED}/{tag}/levels_unseen")
    is_mixed = any(all(record.get(name) for name in kinds) for record in records)
    curves = []
    for name, (rollout, kind) in SERIES.items():
        found = [(r["step"], success_of_tag(r, tag, num_levels, rollout=rollout, kind=kind)) for r in records]
        points = [(step, estimate) for step, estimate in found if estimate is not None]
        if points and (is_mixed or not kind):
            steps, estimates = zip(*points, strict=True)
            curves.append(Curve(name=name, steps=list(steps), estimates=list(estimates)))
    return curves


def plot_learning_curve(run: Path, out: Path) -> dict[str, list[Curve]]:
    """Draw every validation tag of a run into one PNG; returns what was drawn."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("Figures need matplotlib. Run: pip install -e '.[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records, levels = read_metrics(run), read_validation(run).levels
    curves = {tag: read_curves(records, tag, count) for tag, count in levels.items()}
    curves = {tag: found for tag, found in curves.items() if found}
    if not curves:
        raise RagenError(f"{run} has no validation metrics (val-env/<tag>/success). Train with trainer.test_freq > 0.")
    figure, axes = plt.subplots(1, len(curves), figsize=(6.4 * len(curves), 4.2), squeeze=False)
    for axis, (tag, found) in zip(axes[0], curves.items(), strict=True):
        for curve in found:
            mode, *unseen = curve.name.split(", ")
            color, line = COLORS[mode], ":" if unseen else "-"
            means = [estimate.mean for estimate in curve.estimates]
            axis.plot(curve.steps, means, line, marker="o", markersize=3.5, color=color, label=curve.name)
            if unseen:  # its band would hide the other one
                continue
            lows, highs = [e.low for e in curve.estimates], [e.high for e in curve.estimates]
            axis.fill_between(curve.steps, lows, highs, color=color, alpha=0.15, linewidth=0)
        for name, value in read_references(run).get(tag, {}).items():
            axis.axhline(value, color=COLORS[name], linestyle="--", linewidth=1, label=f"{name} ({value:.2f})")
        axis.set(xlabel="training step", ylabel="validation success", ylim=(-0.02, 1.04))
        axis.set_title(f"{tag}, {levels[tag]} validation levels, 95 % bands", fontsize=10)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    save_figure(figure, out, dpi=150)
    plt.close(figure)
    return curves


def read_references(run: Path) -> dict[str, dict[str, float]]:
    """Tag -> reference policy -> success, where the run has them (references.json)."""
    path = run / "references.json"
    return read_object(path) if path.exists() else {}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ragen plot", description="Draw the validation success of a run.")
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--out", type=Path, help="PNG file (RUN/learning_curve.png)")
    args = parser.parse_args(argv)
    out = args.out or args.run / "learning_curve.png"
    curves = plot_learning_curve(args.run, out)
    for tag, found in curves.items():
        for curve in found:
            first, last = curve.estimates[0], curve.estimates[-1]
            print(f"{tag}, {curve.name}: {first} at step {curve.steps[0]} -> {last} at step {curve.steps[-1]}")
    print(f"wrote {out}")
    return 0
