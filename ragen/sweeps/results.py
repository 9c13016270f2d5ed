"""The result line of every run and the summary log of a sweep."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragen.sweeps.run import STATUS_OF_STATE, TIMES, Outcome, Run, outcome_of, read_state
from ragen.tracking.rundir import read_status, write_atomic


def result_line(run: Run, outcome: Outcome) -> str:
    """kl=0.01 | filter=nofilter | include_zero=True | train_time=61.20s | ... | gpu=1xH100 | status=success"""
    fields = dict(run.fields)
    if run.seed > 1:
        fields["seed"] = str(run.seed)
    for name in TIMES:
        seconds = outcome.times.get(name)
        fields[name] = "N/A" if seconds is None else f"{seconds:.2f}s"
    fields["wall_time"] = "N/A" if outcome.wall_time is None else f"{outcome.wall_time:.0f}s"
    fields |= {"gpu": outcome.device, "status": outcome.status}
    if outcome.early_stop:
        fields["early_stop"] = outcome.early_stop
    return " | ".join(f"{name}={value}" for name, value in fields.items())


def result_text(run: Run, outcome: Outcome) -> str:
    """The result line; below it, indented, the last lines of a run that failed."""
    lines = [result_line(run, outcome)]
    if outcome.last_lines:
        lines.append("    " + " / ".join(outcome.last_lines))
    return "\n".join(lines) + "\n"


def write_result(run: Run, outcome: Outcome) -> None:
    write_atomic(run.result, result_text(run, outcome))


def outcome_before(run: Run) -> Outcome:
    """How a run ended that a former sweep made. Only the sweep knows wall time and device: its result line has them.

    A sweep that was killed right after the run ended has left none; then the trainer's clock counts.
    """
    assert read_state(run.run_dir) in STATUS_OF_STATE, f"{run.run_dir} has not ended"
    text = run.result.read_text() if run.result.exists() else ""
    fields = dict(part.split("=", 1) for part in text.strip().split(" | ") if "=" in part)
    match = re.fullmatch(r"(\d+)s", fields.get("wall_time", ""))
    wall_time = float(match[1]) if match else float(read_status(run.run_dir)["seconds"])
    return outcome_of(run, exit_code=0, wall_time=wall_time, device=fields.get("gpu", "N/A"))


class SummaryLog:
    """A header, a line per run as it ends, and at the end all of them in the order of the values."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self._path = path
        write_atomic(path, "\n".join(header) + "\n\n")

    def add(self, run: Run, outcome: Outcome) -> None:
        self._append(result_text(run, outcome))

    def finish(self, outcomes: Mapping[str, Outcome], runs: Sequence[Run]) -> None:
        lines = [result_text(run, outcomes[run.name]) for run in runs]
        self._append("\n=== Summary ===\n" + "".join(lines))

    def _append(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
