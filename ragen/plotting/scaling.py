"""`ragen scaling RUN RUN ...`: finished runs of models of several sizes, in one table and one figure.

Runs of one model that differ in their seed, as trainer.seeds trains them, are one row: their mean, with an interval
over the seeds, and the difference from the smallest model by pairs of seeds.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ragen.algorithms.statistics import Estimate
from ragen.files import read_tensor_header, read_yaml, value_at
from ragen.plotting import style
from ragen.studies.arms import make_arm, read_arm_run
from ragen.studies.comparison import COLUMNS as DIFFERENCES
from ragen.studies.comparison import compare_all, how_compared, to_row
from ragen.studies.conditions import Condition, Curve, collapse_note, interval_name
from ragen.tracking.console import counted, markdown_table, print_table
from ragen.tracking.names import SCORE, VALIDATION, by_tag
from ragen.tracking.rundir import read_metrics, read_status, write_atomic

COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.VERMILION, style.PURPLE, style.GREY)
COLUMNS = ("model", "parameters", "run", "seeds", "steps", "first success", "best (step)", "last [95 %]", "last score")
SEED_END = re.compile(r"-seed\d+$")
"""How runs are called that repeat another one: lake-seed2."""
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
    curve: Curve
    final_score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A model with the runs of its seeds."""

    runs: list[ScalingRun]
    condition: Condition
    """The same runs as an arm of a comparison."""

    @property
    def model(self) -> str:
        return self.runs[0].model

    @property
    def name(self) -> str:
        """Of one run its own; of several the one that they share."""
        return self.runs[0].name if len(self.runs) == 1 else SEED_END.sub("", self.runs[0].name)

    @property
    def num_parameters(self) -> float | None:
        return next((run.num_parameters for run in self.runs if run.num_parameters), None)

    @property
    def final(self) -> Estimate | None:
        """The last validation: of one run however it ended, of several the mean of those that did not collapse."""
        return self.runs[0].curve.estimates[-1] if len(self.runs) == 1 else self.condition.final


def read_run(run: Path) -> ScalingRun:
    """The validations of a run directory; a run without any is an error."""
    config_file = run / "config.yaml"
    model = str(value_at(read_yaml(config_file), "actor_rollout_ref.model.path", config_file))
    curve = read_arm_run(Path(model).name, run)
    [last] = [row for row in read_metrics(run) if row["step"] == curve.steps[-1]]
    return ScalingRun(
        name=curve.run.name,
        model=Path(model).name,
        num_parameters=count_parameters(run) or size_in_name(model),
        state=read_status(run)["state"],
        curve=curve,
        final_score=fmean(by_tag(last, VALIDATION, SCORE).values() or [math.nan]),
    )


def group_runs(runs: Sequence[ScalingRun]) -> list[Size]:
    """From the smallest model to the largest. Runs of one name and one seed do not repeat each other: each is a row."""
    groups: dict[tuple[str, str], list[ScalingRun]] = {}
    for run in runs:
        groups.setdefault((run.model, SEED_END.sub("", run.name)), []).append(run)
    sizes = []
    for (model, name), members in groups.items():
        are_seeds = len({run.curve.run.seed for run in members}) == len(members)
        for part in [members] if are_seeds else [[run] for run in members]:
            sizes.append(Size(runs=part, condition=make_arm(f"{model}, {name}", [run.curve for run in part])))
    return sorted(sizes, key=lambda size: (size.num_parameters or 0.0, size.name))


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


def table_rows(sizes: Sequence[Size]) -> list[list[str]]:
    return [
        [
            size.model,
            short_count(size.num_parameters),
            size.name,
            seeds_text(size),
            " or ".join(dict.fromkeys(str(run.curve.steps[-1]) for run in size.runs)),
            f"{fmean(run.curve.successes[0] for run in size.runs):.3f}",
            best_text(size),
            f"{size.final}" if size.final else "-",
            f"{fmean(run.final_score for run in size.runs):.2f}",
        ]
        for size in sizes
    ]


def seeds_text(size: Size) -> str:
    """3; 3 (1 early_stopped): how many runs there are, and how those ended that did not finish"""
    states = Counter(run.state for run in size.runs if run.state != "finished")
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{len(size.runs)} ({ended})" if ended else str(len(size.runs))


def best_text(size: Size) -> str:
    """0.531 (40): the best validation of one run and its step; of several the mean of their best."""
    if len(size.runs) == 1:
        return f"{size.runs[0].curve.best:.3f} ({size.runs[0].curve.best_step})"
    return f"{size.condition.best.mean:.3f}" if size.condition.best else "-"


def differences_text(sizes: Sequence[Size]) -> str:
    """Every model against the smallest, by the rules of `ragen compare`; empty where no model has several seeds."""
    arms = [size.condition for size in sizes]
    comparisons = compare_all(arms, arms[0]) if any(len(size.runs) > 1 for size in sizes) else []
    if not comparisons:
        return ""
    rows = [[each.value, *to_row(each)] for each in comparisons]
    parts = [f"Mean [{interval_name(arms)}]. Success less that of {arms[0].value}:"]
    parts.append(markdown_table(("model", *DIFFERENCES), rows))
    return "\n\n".join([*parts, how_compared(comparisons), *filter(None, [collapse_note(arms)])]) + "\n"


def plot_scaling(sizes: Sequence[Size], out: Path) -> Path:
    """Left: success while training, a curve per run. Right: final success against the number of parameters."""
    figure = style.new_figure(11, 4.4)
    curves, finals = figure.subplots(1, 2)
    for size, color in zip(sizes, itertools.cycle(COLORS)):
        label = f"{size.model} ({short_count(size.num_parameters)}), {size.name}"
        for number, run in enumerate(size.runs):
            shown = {"label": label} if number == 0 else {}
            curves.plot(run.curve.steps, run.curve.successes, marker="o", markersize=3.5, color=color, **shown)
        if size.num_parameters and size.final:
            bars = [[size.final.below], [size.final.above]]
            finals.errorbar([size.num_parameters], [size.final.mean], yerr=bars, marker="o", capsize=3, color=color)
    style.clean(curves, "Validation success", xlabel="training step", ylabel="success")
    units = "seeds" if any(len(size.runs) > 1 for size in sizes) else "levels"
    style.clean(finals, f"Final success, 95 % intervals over {units}", xlabel="parameters", ylabel="success")
    curves.xaxis.get_major_locator().set_params(integer=True)
    if counts := [size.num_parameters for size in sizes if size.num_parameters]:
        finals.set_xscale("log")
        finals.set_xlim(min(counts) / MARGIN, max(counts) * MARGIN)
        ticks = readable_ticks(counts)
        finals.set_xticks(ticks, [short_count(count) for count in ticks])
        finals.set_xticks([], minor=True)
    else:
        style.show_text(finals, "No checkpoint and no name says how large the models are.")
    for axis in (curves, finals):
        axis.set_ylim(-0.03, 1.03)
    # Outside: there is no corner where curves of success never go.
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return style.save_figure(figure, out)


def readable_ticks(counts: Sequence[float]) -> list[float]:
    """Counts that are far enough from each other for their labels: [1, 1, 1.1, 3] -> [1, 3]"""
    chosen: list[float] = []
    for count in sorted(counts):
        if not chosen or math.log(count / chosen[-1]) > MIN_TICK_SHARE * math.log(max(counts) / min(counts)):
            chosen.append(count)
    return chosen


def compare_runs(folders: Sequence[Path], out: Path) -> None:
    """Print the table of the runs, and write it and the figure below `out`."""
    sizes = group_runs(list(map(read_run, folders)))
    rows, differences = table_rows(sizes), differences_text(sizes)
    print_table(f"Model scaling, {counted(len(folders), 'run')}, success in validation", COLUMNS, rows)
    if differences:
        print(differences)
    parts = [markdown_table(COLUMNS, rows), *([differences.rstrip()] if differences else [])]
    write_atomic(out / "scaling.md", "\n\n".join(parts) + "\n")
    figure = plot_scaling(sizes, out / "scaling.png")
    print(f"wrote {out / 'scaling.md'} and {figure}")
