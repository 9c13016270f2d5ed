"""`ragen scaling RUN RUN ...`: finished runs of models of several sizes, in one table and one figure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ragen.algorithms.statistics import Estimate
from ragen.errors import RagenError
from ragen.files import read_tensor_header, read_yaml, value_at
from ragen.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    clean,
    new_figure,
    save_figure,
    show_text,
)
from ragen.tracking.console import markdown_table, print_table
from ragen.tracking.names import SCORE, VALIDATION, by_tag
from ragen.tracking.rundir import read_metrics, read_status, write_atomic
from ragen.tracking.validation import NO_VALIDATION, mean_success, read_validation

COLORS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY)
COLUMNS = ("model", "parameters", "run", "steps", "first success", "best (step)", "last [95 %]", "last score")
MARGIN = 1.6
"""Factor between the smallest and largest model and the edges of the figure."""
MIN_TICK_SHARE = 0.1
"""Least distance of two labels, as a share of the axis."""
SIZE_IN_NAME = re.compile(r"(\d+(?:[._]\d+)?)\s*([BM])(?![A-Za-z])", re.IGNORECASE)
UNITS = {"B": 1e9, "M": 1e6}
NOT_WEIGHTS = ("optimizer.safetensors", "adapter.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRun:
    """What is compared of a run."""

    name: str
    model: str
    num_parameters: float | None
    """None when neither a checkpoint nor the model's name says."""
    state: str
    steps: list[int]
    """Steps with a validation."""
    successes: list[float]
    """[validations] Mean over the environments."""
    final: Estimate
    """The last one, with its interval over the levels."""
    final_score: float


def read_run(run: Path) -> ScalingRun:
    """The validations of a run directory; a run without any is an error."""
    levels = read_validation(run).levels
    found = [(row, estimate) for row in read_metrics(run) if (estimate := mean_success(row, levels))]
    if not found:
        raise RagenError(f"{run} {NO_VALIDATION}")
    config_file = run / "config.yaml"
    config = read_yaml(config_file)
    model = str(value_at(config, "actor_rollout_ref.model.path", config_file))
    last, final = found[-1]
    return ScalingRun(
        name=str(value_at(config, "trainer.experiment_name", config_file)),
        model=Path(model).name,
        num_parameters=count_parameters(run) or size_in_name(model),
        state=read_status(run)["state"],
        steps=[row["step"] for row, _ in found],
        successes=[estimate.mean for _, estimate in found],
        final=final,
        final_score=fmean(by_tag(last, VALIDATION, SCORE).values() or [math.nan]),
    )


def count_parameters(run: Path) -> float | None:
    """Numbers in the weight files of a checkpoint, by their headers; None without a checkpoint."""
    for actor in sorted(run.glob("global_step_*/actor")):
        files = [file for file in actor.glob("*.safetensors") if file.name not in NOT_WEIGHTS]
        if files:
            tensors = (tensor for file in files for tensor in read_tensor_header(file).values())
            return float(sum(math.prod(tensor.shape) for tensor in tensors))
    return None


def size_in_name(model: str) -> float | None:
    """Qwen/Qwen2.5-0.5B-Instruct -> 5e8"""
    match = SIZE_IN_NAME.search(Path(model).name)
    return float(match[1].replace("_", ".")) * UNITS[match[2].upper()] if match else None


def short_count(count: float | None) -> str:
    """494032768 -> 494M, 3.09e9 -> 3.1B, 31000 -> 31k"""
    if count is None:
        return "unknown"
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            value = count / limit
            return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"
    return f"{count:.0f}"


def table_rows(runs: Sequence[ScalingRun]) -> list[list[str]]:
    rows = []
    for run in runs:
        best = max(range(len(run.steps)), key=lambda i: run.successes[i])
        state = "" if run.state == "finished" else f" ({run.state})"
        rows.append(
            [
                run.model,
                short_count(run.num_parameters),
                run.name + state,
                str(run.steps[-1]),
                f"{run.successes[0]:.3f}",
                f"{run.successes[best]:.3f} ({run.steps[best]})",
                f"{run.final}",
                f"{run.final_score:.2f}",
            ]
        )
    return rows


def plot_scaling(runs: Sequence[ScalingRun], out: Path) -> Path:
    """Left: success while training, a curve per run. Right: final success against the number of parameters."""
    figure = new_figure(11, 4.4)
    curves, sizes = figure.subplots(1, 2)
    for run, color in zip(runs, itertools.cycle(COLORS)):
        label = f"{run.model} ({short_count(run.num_parameters)}), {run.name}"
        curves.plot(run.steps, run.successes, marker="o", markersize=3.5, color=color, label=label)
        if run.num_parameters:
            bars = [[run.final.below], [run.final.above]]
            sizes.errorbar([run.num_parameters], [run.final.mean], yerr=bars, marker="o", capsize=3, color=color)
    clean(curves, "Validation success", xlabel="training step", ylabel="success")
    clean(sizes, "Final success, 95 % intervals over levels", xlabel="parameters", ylabel="success")
    curves.xaxis.get_major_locator().set_params(integer=True)
    if counts := [run.num_parameters for run in runs if run.num_parameters]:
        sizes.set_xscale("log")
        sizes.set_xlim(min(counts) / MARGIN, max(counts) * MARGIN)
        ticks = readable_ticks(counts)
        sizes.set_xticks(ticks, [short_count(count) for count in ticks])
        sizes.set_xticks([], minor=True)
    else:
        show_text(sizes, "No checkpoint and no name says how large the models are.")
    for axis in (curves, sizes):
        axis.set_ylim(-0.03, 1.03)
    # Outside: there is no corner where curves of success never go.
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return save_figure(figure, out)


def readable_ticks(counts: Sequence[float]) -> list[float]:
    """Counts that are far enough from each other for their labels: [1, 1, 1.1, 3] -> [1, 3]"""
    chosen: list[float] = []
    for count in sorted(counts):
        if not chosen or math.log(count / chosen[-1]) > MIN_TICK_SHARE * math.log(max(counts) / min(counts)):
            chosen.append(count)
    return chosen


def compare_runs(folders: Sequence[Path], out: Path) -> None:
    """Print the table of the runs, and write it and the figure below `out`."""
    runs = sorted(map(read_run, folders), key=lambda run: (run.num_parameters or 0.0, run.name))
    rows = table_rows(runs)
    print_table(f"Model scaling, {len(runs)} runs, success in validation", COLUMNS, rows)
    write_atomic(out / "scaling.md", markdown_table(COLUMNS, rows) + "\n")
    figure = plot_scaling(runs, out / "scaling.png")
    print(f"wrote {out / 'scaling.md'} and {figure}")
