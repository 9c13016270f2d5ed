"""Runs that were never run: directories with the metrics that a test wants a claim to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.reproduce.claim import Evidence
from ragen.studies.conditions import Condition, read_curve
from ragen.studies.outcomes import Outcome
from ragen.sweeps.driving.run import Run

Rows = Sequence[Mapping[str, Any]]


def write_run(folder: Path, rows: Rows) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def evidence(root: Path, arms: Mapping[str, Callable[[int], Rows]], *, num_seeds: int = 5) -> Evidence:
    """Arm -> seed -> the metrics of its steps."""
    found = {}
    for number, (name, rows_of) in enumerate(arms.items()):
        curves = []
        for seed in range(1, num_seeds + 1):
            folder = write_run(root / f"{number}-{seed}", rows_of(seed))
            run = Run(name=f"{number}-{seed}", command=(), log=root / "log", run_dir=folder, total_steps=1, seed=seed)
            curves.append(read_curve(run, Outcome(status="success", wall_time=60.0)))
        found[name] = Condition(value=name, curves=curves, share_levels=False)
    return Evidence(arms=found)


def successes(*values: float, noise: float = 0.01) -> Callable[[int], Rows]:
    """Validations at steps 0, 10, ...; seeds differ a little."""
    return lambda seed: [
        {"step": 10 * index, "val-env/A/success": value + noise * (seed - 3)} for index, value in enumerate(values)
    ]
