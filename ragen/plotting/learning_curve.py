"""`ragen plot RUN`: validation success against training steps, with intervals and reference lines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ragen.algorithms.statistics import Estimate, proportion_interval
from ragen.errors import MissingExtra, RagenError
from ragen.tracking.rundir import read_metrics

SERIES = {"sampled": "val-env", "greedy": "val-env-greedy"}
"""Legend -> prefix of its metrics."""
COLORS = {"sampled": "#1f6fb4", "greedy": "#d1711a", "random policy": "#888888", "solver": "#3a8f4d"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Success of one way of replying, step by step."""

    name: str
    steps: list[int]
    estimates: list[Estimate]


def read_curves(run: Path, tag: str, num_levels: int) -> list[Curve]:
    """The validation curves of a tag; intervals are Wilson's over the validation levels."""
    records = read_metrics(run)
    curves = []
    for name, prefix in SERIES.items():
        key = f"{prefix}/{tag}/success"
        points = [(record["step"], record[key]) for record in records if key in record]
        if points:
            estimates = [proportion_interval(round(value * num_levels), num_levels) for _, value in points]
            curves.append(Curve(name=name, steps=[step for step, _ in points], estimates=estimates))
    return curves


def read_levels(run: Path) -> dict[str, int]:
    """Validation episodes of each tag, from the run's configuration."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    val = config["es_manager"]["val"]
    counts = zip(val["env_configs"]["tags"], val["env_configs"]["n_groups"], strict=True)
    return {tag: count * val["group_size"] for tag, count in counts}


def plot_learning_curve(run: Path, out: Path) -> dict[str, list[Curve]]:
    """Draw every validation tag of a run into one PNG; returns what was drawn."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("Figures need matplotlib. Run: pip install -e '.[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    levels = read_levels(run)
    curves = {tag: read_curves(run, tag, count) for tag, count in levels.items()}
    curves = {tag: found for tag, found in curves.items() if found}
    if not curves:
        raise RagenError(f"{run} has no validation metrics (val-env/<tag>/success). Train with trainer.test_freq > 0.")
    figure, axes = plt.subplots(1, len(curves), figsize=(6.4 * len(curves), 4.2), squeeze=False)
    for axis, (tag, found) in zip(axes[0], curves.items(), strict=True):
        for curve in found:
            color = COLORS[curve.name]
            means = [estimate.mean for estimate in curve.estimates]
            axis.plot(curve.steps, means, marker="o", markersize=3.5, color=color, label=curve.name)
            lows, highs = [e.low for e in curve.estimates], [e.high for e in curve.estimates]
            axis.fill_between(curve.steps, lows, highs, color=color, alpha=0.15, linewidth=0)
        for name, value in read_references(run).get(tag, {}).items():
            axis.axhline(value, color=COLORS[name], linestyle="--", linewidth=1, label=f"{name} ({value:.2f})")
        axis.set(xlabel="training step", ylabel="validation success", ylim=(-0.02, 1.04))
        axis.set_title(f"{tag}, {levels[tag]} held-out levels, 95 % bands", fontsize=10)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    plt.close(figure)
    return curves


def read_references(run: Path) -> dict[str, dict[str, float]]:
    """Tag -> reference policy -> success, where the run has them (references.json)."""
    path = run / "references.json"
    return json.loads(path.read_text()) if path.exists() else {}


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
