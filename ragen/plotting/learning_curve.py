"""`ragen plot RUN ...`: validation success against training steps, with intervals and reference lines.

Several runs are seeds of one setting: each is a thin line, and their mean has an interval over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ragen.algorithms.statistics import Estimate, over_seeds
from ragen.errors import RagenError
from ragen.files import read_yaml, value_at
from ragen.plotting.style import new_figure, save_figure
from ragen.studies.conditions import share_levels
from ragen.tracking.rundir import read_metrics
from ragen.tracking.validation import MODES, NO_VALIDATION, read_references, read_validation, success_by_tag

COLORS = {"sampled": "#1f6fb4", "greedy": "#d1711a", "random policy": "#888888", "solver": "#3a8f4d"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Success of one way of replying, step by step."""

    mode: str
    """A key of MODES."""
    is_unseen: bool
    """Whether only levels that training had not played count."""
    steps: list[int]
    estimates: list[Estimate]

    @property
    def name(self) -> str:
        return f"{self.mode}, unseen levels" if self.is_unseen else self.mode


def read_curves(rows: Sequence[Mapping[str, Any]], tag: str, num_levels: int) -> list[Curve]:
    """The validation curves of a tag; that of unseen levels only where a validation has both kinds."""
    curves = []
    for mode, rollout in MODES.items():
        validations = {row["step"]: success_by_tag(row, {tag: num_levels}, rollout=rollout).get(tag) for row in rows}
        found = {step: each for step, each in validations.items() if each is not None}
        unseen = {step: each.unseen for step, each in found.items() if each.unseen is not None}
        if found:
            estimates = [each.success for each in found.values()]
            curves.append(Curve(mode=mode, is_unseen=False, steps=[*found], estimates=estimates))
        if any(each.is_mixed for each in found.values()):
            curves.append(Curve(mode=mode, is_unseen=True, steps=[*unseen], estimates=[*unseen.values()]))
    return curves


def read_run(run: Path) -> dict[str, list[Curve]]:
    """The curves of every validation tag of a run."""
    rows, levels = read_metrics(run), read_validation(run).levels
    curves = {tag: found for tag, count in levels.items() if (found := read_curves(rows, tag, count))}
    if not curves:
        raise RagenError(f"{run} {NO_VALIDATION}")
    return curves


def mean_curves(seeds: Sequence[Sequence[Curve]], *, share_levels: bool) -> list[Curve]:
    """The curves that all runs have, at the steps that all of them validated, with intervals over the runs."""
    means = []
    for first in seeds[0]:
        same = [curve for curves in seeds for curve in curves if curve.name == first.name]
        if len(same) < len(seeds):
            continue
        points = [dict(zip(curve.steps, curve.estimates, strict=True)) for curve in same]
        steps = [step for step in first.steps if all(step in each for each in points)]
        estimates = [over_seeds([p[step] for p in points], share_levels=share_levels).as_share() for step in steps]
        if steps:
            means.append(replace(first, steps=steps, estimates=estimates))
    return means


def read_seeds(runs: Sequence[Path]) -> list[dict[str, list[Curve]]]:
    """[runs] The curves of every validation tag, which all runs share."""
    seeds = [read_run(run) for run in runs]
    for run, found in zip(runs, seeds, strict=True):
        if [*found] != [*seeds[0]]:
            raise RagenError(
                f"{run} is validated on {', '.join(found)}, {runs[0]} on {', '.join(seeds[0])}. Several runs are drawn "
                "as seeds of one setting: give runs of the same one."
            )
    return seeds


def join(runs: Sequence[Path], seeds: Sequence[dict[str, list[Curve]]]) -> dict[str, list[Curve]]:
    """The curves of a run, or the mean of several."""
    is_shared = share_levels([str(value_at(read_yaml(run / "config.yaml"), "seed.val", run)) for run in runs])
    return {tag: mean_curves([found[tag] for found in seeds], share_levels=is_shared) for tag in seeds[0]}


def plot_learning_curve(runs: Sequence[Path], out: Path) -> dict[str, list[Curve]]:
    """Draw every validation tag into one PNG; returns what was drawn: a run, or the mean of several."""
    seeds = read_seeds(runs)
    curves = join(runs, seeds)
    draw(runs, seeds, curves, out)
    return curves


def draw(
    runs: Sequence[Path], seeds: Sequence[dict[str, list[Curve]]], curves: dict[str, list[Curve]], out: Path
) -> None:
    """One PNG with a panel for each tag; of several runs also a thin line each."""
    levels = read_validation(runs[0]).levels
    figure = new_figure(6.4 * len(curves), 4.2)
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (tag, found) in zip(axes, curves.items(), strict=True):
        thin = [curve for seed in seeds for curve in seed[tag]] if len(runs) > 1 else []
        for curve in thin:
            means = [estimate.mean for estimate in curve.estimates]
            axis.plot(curve.steps, means, color=COLORS[curve.mode], alpha=0.4, linewidth=0.8)
        for curve in found:
            color, means = COLORS[curve.mode], [estimate.mean for estimate in curve.estimates]
            line = ":" if curve.is_unseen else "-"
            axis.plot(curve.steps, means, line, marker="o", markersize=3.5, color=color, label=curve.name)
            if not curve.is_unseen:  # whose band would hide the other one
                lows, highs = [e.low for e in curve.estimates], [e.high for e in curve.estimates]
                axis.fill_between(curve.steps, lows, highs, color=color, alpha=0.15, linewidth=0)
        for policy, value in read_references(runs[0]).get(tag, {}).items():
            name = "random policy" if policy == "random" else policy
            axis.axhline(value, color=COLORS[name], linestyle="--", linewidth=1, label=f"{name} ({value:.2f})")
        axis.set(xlabel="training step", ylabel="validation success", ylim=(-0.02, 1.04))
        over = f", {len(runs)} runs" if len(runs) > 1 else ""
        axis.set_title(f"{tag}, {levels[tag]} validation levels{over}, 95 % bands", fontsize=10)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, loc="lower right")
    save_figure(figure, out, dpi=150)


def print_learning_curve(runs: Sequence[Path], out: Path) -> None:
    """Print the first and the last point of every curve, and draw them."""
    seeds = read_seeds(runs)
    curves = join(runs, seeds)
    if len(runs) > 1:
        lasts = {run: read_metrics(run)[-1]["step"] for run in runs}
        print(f"the mean of {len(runs)} runs with 95 % intervals over them, at the steps that all have")
        for run, last in lasts.items():
            if last < max(lasts.values()):
                print(f"{run} ended at step {last}: the mean ends there, not the others")
    for tag, found in curves.items():
        for curve in found:
            first, last = curve.estimates[0], curve.estimates[-1]
            print(f"{tag}, {curve.name}: {first} at step {curve.steps[0]} -> {last} at step {curve.steps[-1]}")
    draw(runs, seeds, curves, out)  # which needs matplotlib, and the numbers do not
    print(f"wrote {out}")
