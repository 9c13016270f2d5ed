"""`ragen collapse`, or `python gradient_analysis/plot_collapse.py`: entropy and mutual information over training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.errors import RagenError, reporting_errors
from ragen.plotting import style
from ragen.plotting.history import Metrics, read_run_dir
from ragen.tracking.names import ANY_TURNS, FIRST_TURNS, SUCCESS, VALIDATION, below, by_tag, collapse, join

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETS = {FIRST_TURNS: ("first turns", style.BLUE), ANY_TURNS: ("any turn", style.VERMILION)}
"""Set of sampled replies -> its name and colour."""
VALIDATION_COLORS = [style.BLUE, style.ORANGE, style.GREEN, style.VERMILION]
FAR = 4.0
"""A bound this many times above the data is written instead of drawn, since it would flatten the curve."""

Steps = dict[int, Metrics]


def series(steps: Steps, name: str) -> tuple[list[int], list[float]]:
    """The steps and values of a metric."""
    points = [(step, metrics[name]) for step, metrics in sorted(steps.items()) if name in metrics]
    return [step for step, _ in points], [value for _, value in points]


def draw_line(axis: Axes, steps: Steps, name: str, **looks: object) -> list[float]:
    """One metric over the steps; returns its values. A single one, which makes no line, has a mark."""
    at, values = series(steps, name)
    if len(values) == 1 and "marker" not in looks:
        looks |= {"marker": "_", "markersize": 14}
    if values:
        axis.plot(at, values, **({"markersize": 4} | looks))  # type: ignore[arg-type]
    return values


def draw_entropies(axis: Axes, steps: Steps) -> None:
    style.clean(axis, "entropy of the reasoning", xlabel="training step", ylabel="nats per token")
    for turns, (name, color) in SETS.items():
        marginal, given = collapse(turns, "reasoning_entropy_est"), collapse(turns, "conditional_entropy_est")
        draw_line(axis, steps, marginal, label=f"marginal, {name}", color=color, ls="--")
        draw_line(axis, steps, given, label=f"given the prompt, {name}", color=color, marker="o")


def draw_information(axis: Axes, steps: Steps) -> None:
    style.clean(axis, "mutual information of prompt and reasoning", xlabel="training step", ylabel="nats per token")
    top = max((value for turns in SETS for value in series(steps, collapse(turns, "mi_estimate"))[1]), default=0.0)
    for turns, (name, color) in SETS.items():
        bounds = series(steps, collapse(turns, "mi_upper_bound"))[1]
        is_far = bool(bounds) and max(bounds) > FAR * top
        label = f"{name}, at most {max(bounds):.2f}" if is_far else name
        draw_line(axis, steps, collapse(turns, "mi_estimate"), label=label, color=color, marker="o")
        if bounds and not is_far:
            bound = collapse(turns, "mi_upper_bound")
            draw_line(axis, steps, bound, label=f"upper bound, {name}", color=color, ls=":")


def draw_retrieval(axis: Axes, steps: Steps) -> None:
    style.clean(axis, "retrieval of the prompt from the reasoning", xlabel="training step", ylabel="accuracy")
    for turns, (name, color) in SETS.items():
        accuracy, chance = collapse(turns, "retrieval_accuracy"), collapse(turns, "retrieval_chance_level")
        draw_line(axis, steps, accuracy, label=name, color=color, marker="o")
        draw_line(axis, steps, chance, label=f"chance, {name}", color=color, ls=":")


def draw_validation(axis: Axes, steps: Steps) -> None:
    style.clean(axis, "validation", xlabel="training step", ylabel="success")
    tags = sorted({tag for metrics in steps.values() for tag in by_tag(metrics, VALIDATION, SUCCESS)})
    for index, tag in enumerate(tags):
        color = VALIDATION_COLORS[index % len(VALIDATION_COLORS)]
        draw_line(axis, steps, join(VALIDATION, tag, SUCCESS), label=tag, color=color, marker="o")


def plot_collapse(run: Path, out: Path) -> Path:
    """Draw the collapse metrics of a run directory."""
    steps = read_run_dir(run).steps
    if not any(below(turns, metrics) for metrics in steps.values() for turns in SETS):
        raise RagenError(
            f"{run} has no collapse metrics ({', '.join(SETS)}). "
            "Train with collapse_detection.compute_freq above 0, agent_proxy.context_window_mode=full and "
            "agent_proxy.enable_think=True."
        )
    figure = style.new_figure(10.4, 7.2)
    panels = (draw_entropies, draw_information, draw_retrieval, draw_validation)
    room = max(0.5, 0.04 * (max(steps) - min(steps)))
    for axis, draw in zip(figure.subplots(2, 2).flat, panels, strict=True):
        draw(axis, steps)
        if not axis.lines:
            style.show_text(axis, "not logged")
            continue
        style.from_zero(axis, room=0.08)
        if axis.dataLim.y0 < 0:  # estimates may fall below zero
            axis.axhline(0, color=style.GREY, linewidth=0.8)
        axis.set_xlim(min(steps) - room, max(steps) + room)  # the same in all panels
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=8)
    return style.save_figure(figure, out)


def main(argv: Sequence[str] | None = None, *, prog: str = "python gradient_analysis/plot_collapse.py") -> int:
    parser = argparse.ArgumentParser(prog=prog, description="Draw how a run's reasoning depends on the prompt.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run-dir", type=Path, metavar="DIR", help="a run directory")
    source.add_argument("run", type=Path, nargs="?", metavar="RUN", help="the same, without the option's name")
    parser.add_argument("--out", type=Path, help="PNG file (RUN/collapse.png)")
    args = parser.parse_args(argv)
    run = args.run_dir or args.run
    return reporting_errors(lambda: print(plot_collapse(run, args.out or run / "collapse.png")))
