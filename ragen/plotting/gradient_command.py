"""`ragen gradients plot`, or `python gradient_analysis/plot_gradient_analysis.py`: the figures of a run's analyses."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ragen.errors import RagenError, reporting_errors
from ragen.plotting.buckets import analysis_steps, read_analysis
from ragen.plotting.gradient_figures import write_analysis
from ragen.plotting.history import History, Step, read_history, read_run_dir
from ragen.tracking.names import GRADIENTS, PREFILTER_GRADIENTS, numbered_buckets

PROGRAM = "python gradient_analysis/plot_gradient_analysis.py"


def default_folder(history: History) -> Path:
    """gradient_analysis_outputs/<run name>_<run id>, with characters that no shell minds."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", history.name)
    return Path("gradient_analysis_outputs") / "_".join(part for part in (name, history.run_id) if part)


def choose_steps(found: list[Step], asked: list[int] | None) -> list[Step]:
    """The steps to show; those asked for that have no analysis are named."""
    if asked is None:
        return found
    missing = [step for step in asked if step not in found]
    available = ", ".join(map(str, found))
    if len(missing) == len(asked):
        raise RagenError(f"--step {' '.join(map(str, asked))}: no analysis there. Available: {available}.")
    if missing:
        print(f"no analysis at step {', '.join(map(str, missing))}. Available: {available}.", file=sys.stderr)
    return [step for step in found if step in asked]


def plot(args: argparse.Namespace) -> None:
    history = read_run_dir(args.run_dir) if args.run_dir else read_history(args.wandb_path or args.run)
    prefix = PREFILTER_GRADIENTS if args.prefilter else GRADIENTS
    steps = analysis_steps(history, prefix)
    if args.list_steps:
        print(f"{history.name}: {len(steps)} gradient analyses")
        for step in steps:
            buckets = numbered_buckets(history.at(step), prefix)
            print(f"  {step if step == 'summary' else f'step {step}'}: {len(buckets)} buckets")
        return
    folder = args.output_dir or default_folder(history)
    folder = folder / "prefilter" if args.prefilter else folder
    for step in choose_steps(steps, args.step):
        for path in write_analysis(read_analysis(history, step, prefix), history.at(step), folder):
            print(path)


def main(argv: Sequence[str] | None = None, *, prog: str = PROGRAM) -> int:
    parser = argparse.ArgumentParser(prog=prog, description="Draw the gradient analyses of a run.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--wandb-path",
        metavar="RUN",
        help="entity/project/run_id at W&B, a wandb/offline-run-... folder, or a run directory",
    )
    source.add_argument("--run-dir", type=Path, metavar="DIR", help="a run directory (metrics.jsonl and tables/)")
    source.add_argument("run", nargs="?", metavar="RUN", help="what --wandb-path takes, without its name")
    parser.add_argument("--step", type=int, nargs="+", metavar="N", help="steps to draw (all with an analysis)")
    parser.add_argument("--list-steps", action="store_true", help="print the steps with an analysis and leave")
    parser.add_argument("--prefilter", action="store_true", help="draw the analysis of the batch before the filter")
    parser.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="(gradient_analysis_outputs/<run name>_<run id>)"
    )
    args = parser.parse_args(argv)
    return reporting_errors(lambda: plot(args))
