"""`ragen gradients table`, or `python gradient_analysis/tabulate.py`: the buckets as text, with rank correlations."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from statistics import correlation

from ragen.errors import reporting_errors
from ragen.plotting.buckets import COMPONENTS, ENDS, Analysis, Bucket, analysis_steps, read_analysis
from ragen.plotting.gradient_command import choose_steps
from ragen.plotting.history import read_history
from ragen.tracking.console import console, print_table
from ragen.tracking.names import GRADIENTS, PREFILTER_GRADIENTS, Component

COLUMNS = ("bucket", "groups", "reward std", "norm [95 %]", "noise removed", "split-half cosine")


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs. [3, 1, 3] -> [2.5, 1, 2.5]"""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def spearman(values: Sequence[float]) -> float:
    """Rank correlation of values with their order in the list; 0 where all are equal, NaN where one is missing."""
    if any(map(math.isnan, values)):
        return math.nan
    found = ranks(values)
    return correlation(range(1, len(values) + 1), found) if len(set(found)) > 1 else 0.0


def row(bucket: Bucket, component: Component) -> tuple[str, ...]:
    low, high = (bucket.measured(end, component) for end in ENDS)
    return (
        bucket.label,
        f"{bucket['group_rv_count']:.0f}",
        f"{bucket['reward_std_mean']:.3g}",
        f"{bucket[component]:.3g}" + ("" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"),
        shown(bucket.measured("norm_debiased", component), ".3g"),
        shown(bucket.measured("split_half_cosine", component), ".2f"),
    )


def shown(value: float, form: str) -> str:
    """A number, or a dash: a bucket of one group has no interval and no halves."""
    return "–" if math.isnan(value) else f"{value:{form}}"


def tabulate(analysis: Analysis) -> None:
    """A table for each component that is on, and below it what the first and the last bucket say."""
    buckets = analysis.buckets
    for component, label in COMPONENTS.items():
        norms = analysis.values(component)
        if not analysis.is_on(component):
            continue
        rows = [row(bucket, component) for bucket in [*buckets, analysis.whole]]
        print_table(f"{analysis.prefix}, step {analysis.step}: gradient of the {label} term", COLUMNS, rows)
        cosines = analysis.measured("split_half_cosine", component)
        low, high = buckets[-1].measured("norm_low", component), buckets[0].measured("norm_high", component)
        least = ratio(low, high)
        too_few = "their groups are too few for intervals"
        bound = too_few if math.isnan(least) else f"by the intervals at least {least:.2f}"
        console.print(
            f"last/first norm {shown(ratio(norms[-1], norms[0]), '.2f')} ({bound}), "
            f"largest/smallest {shown(ratio(max(norms), min(norms)), '.2f')}; rank correlation with the bucket: "
            f"norm {spearman(norms):+.2f}, cosine {shown(spearman(cosines), '+.2f')}\n"
        )


def ratio(first: float, second: float) -> float:
    return first / second if second else math.nan


def main(argv: Sequence[str] | None = None, *, prog: str = "tabulate.py") -> int:
    parser = argparse.ArgumentParser(
        prog=prog, description="Print the gradient analyses of a run: norms, intervals and signal per bucket."
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("run", nargs="?", help="run directory, local W&B folder, or entity/project/run_id")
    source.add_argument("--run-dir", metavar="DIR", help="the same, as an option")
    parser.add_argument("--step", type=int, nargs="+", help="only these steps")
    parser.add_argument("--prefilter", action="store_true", help="the batch before the filter")
    args = parser.parse_args(argv)

    def command() -> None:
        history = read_history(args.run or args.run_dir)
        prefix = PREFILTER_GRADIENTS if args.prefilter else GRADIENTS
        for step in choose_steps(analysis_steps(history, prefix), args.step):
            tabulate(read_analysis(history, step, prefix))

    return reporting_errors(command)
