"""What a run logged, step by step, wherever it is read from.

our run directory         metrics.jsonl and tables/
a local W&B run folder    wandb/offline-run-... or its .wandb file (`ragen.plotting.wandb_files`)
entity/project/run_id     the W&B server (`ragen.plotting.wandb_online`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ragen.errors import RagenError
from ragen.files import read_yaml, readable, value_at
from ragen.tracking.rundir import read_metrics, read_table, table_steps

Step = int | Literal["summary"]
"""A training step, or the latest value of every metric."""
Metrics = dict[str, float]
Table = list[dict[str, Any]]
"""One dictionary per row: column -> cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The numbers and tables of one run."""

    name: str
    run_id: str
    """The id of the run at W&B; empty where there is none."""
    steps: dict[int, Metrics]
    summary: Metrics
    """The latest value of every metric, as W&B keeps it."""
    load_table: Callable[[Step, str], Table | None]
    """The table of a step by its name; None where there is none."""

    def at(self, step: Step) -> Metrics:
        return self.summary if step == "summary" else self.steps[step]


def read_history(source: str) -> History:
    """The history of a run directory, a local W&B run or a run at the W&B server."""
    path = Path(source)
    if (path / "metrics.jsonl").exists():
        return read_run_dir(path)
    if path.exists():
        from ragen.plotting.wandb_files import find_log, read_wandb_folder

        return read_wandb_folder(find_log(path))
    parts = source.strip("/").split("/")
    is_local = source.startswith((".", "/", "~")) or Path(parts[0]).exists()  # checkpoints/ragen/nope
    if len(parts) == 3 and all(parts) and not is_local:
        from ragen.plotting.wandb_online import read_wandb_online

        return read_wandb_online(*parts)
    raise RagenError(
        f"{source!r} is neither a folder that exists nor entity/project/run_id. "
        "Give a run directory, a wandb/offline-run-... folder, or the path of a run at W&B."
    )


def read_run_dir(path: Path) -> History:
    """The history of one of our run directories."""
    steps: dict[int, Metrics] = {}
    for record in read_metrics(path):
        step = record.pop("step")
        steps.setdefault(step, {}).update(record)
    id_file = path / "wandb" / "run_id.txt"

    def load_table(step: Step, name: str) -> Table | None:
        if not isinstance(step, int) or step not in table_steps(path, name):
            return None
        return as_table(*read_table(path, name, step))

    return History(
        name=run_name(path),
        run_id=id_file.read_text().strip() if id_file.exists() else "",
        steps=steps,
        summary=latest(steps),
        load_table=load_table,
    )


def run_name(path: Path) -> str:
    """trainer.experiment_name, as trackers call the run; of a folder whose configuration names none its own name."""
    config = path / "config.yaml"
    return readable(lambda: value_at(read_yaml(config), "trainer.experiment_name", config), path.resolve().name)


def wandb_history(
    name: str,
    run_id: str,
    rows: Iterable[Mapping[str, Any]],
    summary: Mapping[str, Any],
    read_file: Callable[[str], dict[str, Any] | None],
) -> History:
    """The history of W&B's rows and summary; `read_file` gives the content of a table's file in the run."""
    steps: dict[int, Metrics] = {}
    files: dict[Step, dict[str, str]] = {}
    for row in rows:
        metrics, tables = split_row(row)
        steps.setdefault(row["_step"], {}).update(metrics)
        files.setdefault(row["_step"], {}).update(tables)
    last_values, files["summary"] = split_row(summary)

    def load_table(step: Step, table: str) -> Table | None:
        file = files.get(step, {}).get(table)
        content = read_file(file) if file else None
        return as_table(content["columns"], content["data"]) if content else None

    return History(name=name or run_id, run_id=run_id, steps=steps, summary=last_values, load_table=load_table)


def latest(steps: Mapping[int, Metrics]) -> Metrics:
    """The last value of every metric: {1: {a: 1, b: 2}, 2: {a: 3}} -> {a: 3, b: 2}"""
    return {name: value for step in sorted(steps) for name, value in steps[step].items()}


def as_table(columns: list[str], rows: list[list[Any]]) -> Table:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def split_row(row: Mapping[str, Any]) -> tuple[Metrics, dict[str, str]]:
    """A history row of W&B as metrics and as tables (name -> path of the file in the run).

    A table is a dictionary {"_type": "table-file", "path": ...}; exported histories have it as two dotted keys.
    W&B writes numbers that are not finite as texts. Names that start with _ are W&B's own.
    """
    metrics: Metrics = {}
    tables: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and value.get("_type") == "table-file":
            tables[name] = value["path"]
        elif name.endswith("._type") and value == "table-file":
            table = name.removesuffix("._type")
            tables[table] = row[f"{table}.path"]
        elif value in ("NaN", "Infinity", "-Infinity"):
            metrics[name] = float(value)
        elif isinstance(value, int | float) and not name.startswith("_"):
            metrics[name] = value
    for table in tables:
        # Sizes and counts of a table in its dotted form are no metrics.
        metrics = {name: value for name, value in metrics.items() if not name.startswith(f"{table}.")}
    return metrics, tables
