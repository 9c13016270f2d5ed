"""`python gradient_analysis/plot_collapse.py`: entropy and mutual information of the reasoning over training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.errors import RagenError, reporting_errors
from ragen.plotting.history import Metrics, read_run_dir
from ragen.plotting.style import BLUE, GREEN, GREY, ORANGE, VERMILION, clean, from_zero, new_figure, save_figure, say
from ragen.tracking.validation import SAMPLED, success_by_tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETS = {"collapse_first_turn_sample": ("first turns", BLUE), "collapse_trajectory_sample": ("any turn", VERMILION)}
"""Prefix of a set of sampled replies -> its name and colour."""
VALIDATION_COLORS = [BLUE, ORANGE, GREEN, VERMILION]
FAR = 4.0
"""A bound this many times above the data is written instead of drawn, since it would flatten the curve."""

Steps = dict[int, Metrics]


def series(steps: Steps, name: str) -> tuple[list[int], list[float]]:
    """The steps and values of a metric."""
    points = [(step, metrics[name]) for step, metrics in sorted(steps.items()) if name in metrics]
    return [step for step, _ in points], [value for _, value in points]


def draw_line(axis: Axes, steps: Steps, name: str, **style: object) -> list[float]:
    """One metric over the steps; returns its values."""
    at, values = series(steps, name)
    if values:
        axis.plot(at, values, markersize=4, **style)  # type: ignore[arg-type]
    return values


def draw_entropies(axis: Axes, steps: Steps) -> None:
    clean(axis, "entropy of the reasoning", xlabel="training step", ylabel="nats per token")
    for prefix, (name, color) in SETS.items():
        draw_line(axis, steps, f"{prefix}/reasoning_entropy_est", label=f"marginal, {name}", color=color, ls="--")
        key = f"{prefix}/conditional_entropy_est"
        draw_line(axis, steps, key, label=f"given the prompt, {name}", color=color, marker="o")


def draw_information(axis: Axes, steps: Steps) -> None:
    clean(axis, "mutual information of prompt and reasoning", xlabel="training step", ylabel="nats per token")
    found = {prefix: series(steps, f"{prefix}/mi_estimate")[1] for prefix in SETS}
    top = max((value for values in found.values() for value in values), default=0.0)
    for prefix, (name, color) in SETS.items():
        bounds = series(steps, f"{prefix}/mi_upper_bound")[1]
        is_far = bool(bounds) and max(bounds) > FAR * top
        label = f"{name}, at most {max(bounds):.2f}" if is_far else name
        draw_line(axis, steps, f"{prefix}/mi_estimate", label=label, color=color, marker="o")
        if bounds and not is_far:
            draw_line(axis, steps, f"{prefix}/mi_upper_bound", label=f"upper bound, {name}", color=color, ls=":")


def draw_retrieval(axis: Axes, steps: Steps) -> None:
    clean(axis, "retrieval of the prompt from the reasoning", xlabel="training step", ylabel="accuracy")
    for prefix, (name, color) in SETS.items():
        draw_line(axis, steps, f"{prefix}/retrieval_accuracy", label=name, color=color, marker="o")
        draw_line(axis, steps, f"{prefix}/retrieval_chance_level", label=f"chance, {name}", color=color, ls=":")


def draw_validation(axis: Axes, steps: Steps) -> None:
    clean(axis, "validation", xlabel="training step", ylabel="success")
    tags = sorted({tag for metrics in steps.values() for tag in success_by_tag(metrics, {})})
    for index, tag in enumerate(tags):
        color = VALIDATION_COLORS[index % len(VALIDATION_COLORS)]
        draw_line(axis, steps, f"{SAMPLED}/{tag}/success", label=tag, color=color, marker="o")


def plot_collapse(run: Path, out: Path) -> Path:
    """Draw the collapse metrics of a run directory."""
    steps = read_run_dir(run).steps
    if not any(name.startswith(tuple(SETS)) for metrics in steps.values() for name in metrics):
        raise RagenError(
            f"{run} has no collapse metrics ({', '.join(SETS)}). "
            "Train with collapse_detection.compute_freq > 0, full context and enable_think=True."
        )
    figure = new_figure(10.4, 7.2)
    panels = (draw_entropies, draw_information, draw_retrieval, draw_validation)
    for axis, draw in zip(figure.subplots(2, 2).flat, panels, strict=True):
        draw(axis, steps)
        if not axis.lines:
            say(axis, "not logged")
            continue
        from_zero(axis, room=0.08)
        if axis.dataLim.y0 < 0:  # estimates may fall below zero
            axis.axhline(0, color=GREY, linewidth=0.8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=8)
    return save_figure(figure, out)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python gradient_analysis/plot_collapse.py",
        description="Draw how a run's reasoning depends on the prompt.",
    )
    parser.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="a run directory")
    parser.add_argument("--out", type=Path, help="PNG file (RUN/collapse.png)")
    args = parser.parse_args(argv)
    return reporting_errors(lambda: print(plot_collapse(args.run_dir, args.out or args.run_dir / "collapse.png")))
