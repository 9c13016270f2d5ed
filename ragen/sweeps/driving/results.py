"""How runs ended: `<name>.result.json`, the result line of people, and the summary log of a list of runs.

Nothing reads the line back. Everything but wall time and device is read from the run directory.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from ragen.errors import NOTHING_LEARNED
from ragen.files import read_object
from ragen.studies.outcomes import STATUS_OF_STATE, TIMES, Outcome
from ragen.sweeps.driving.run import Run
from ragen.tracking.names import SCORE, VALIDATION, by_tag
from ragen.tracking.rundir import read_records, read_status, write_atomic


def missing(run: Run) -> Outcome:
    """The outcome of a run that has not ended."""
    return Outcome(status="missing", fields=fields_of(run))


def never_started(run: Run, error: str) -> Outcome:
    return Outcome(status="fail", fields=fields_of(run), last_lines=(f"cannot be started: {error}",))


def outcome_of(run: Run, *, exit_code: int, wall_time: float, device: str) -> Outcome:
    """How a run ended, by its own status.json; a command that failed otherwise has failed whatever is there."""
    status = STATUS_OF_STATE.get(run.state() or "", "fail")
    # An early stop is a result, also where nothing was learned and the command says so by its exit code.
    if exit_code not in ((0, NOTHING_LEARNED) if status == "early_stopped" else (0,)):
        status = "fail"
    last = (read_records(run.run_dir) or [{}])[-1]
    stop = read_status(run.run_dir) if status == "early_stopped" else {}
    return Outcome(
        status=status,
        fields=fields_of(run),
        early_stop=stop.get("early_stop"),
        cause=stop.get("cause", ""),
        times={name: last[metric] for name, metric in TIMES.items() if metric in last},
        wall_time=wall_time,
        device=device,
        last_lines=(*killed_by(exit_code), *tail(run.log)) if status == "fail" else (),
    )


def fields_of(run: Run) -> dict[str, str]:
    fields = dict(run.fields)
    if run.seed > 1:
        fields["seed"] = str(run.seed)
    if run.has_score:
        score = score_of(run)
        fields["score"] = "N/A" if score is None else f"{score:.4f}"
    return fields


def score_of(run: Run) -> float | None:
    """The score of the last validation, the mean over its environments."""
    found = (by_tag(record, VALIDATION, SCORE) for record in reversed(read_records(run.run_dir)))
    return next((fmean(scores.values()) for scores in found if scores), None)


def killed_by(exit_code: int) -> tuple[str, ...]:
    """What no log can say of itself. -9 -> "killed by signal 9 (Killed)" """
    return (f"killed by signal {-exit_code} ({signal.strsignal(-exit_code)})",) if exit_code < 0 else ()


def tail(log: Path) -> tuple[str, ...]:
    """The last two lines of a log that say something."""
    if not log.is_file():
        return ()
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return tuple(line[:300] for line in lines[-2:])


def write_result(run: Run, outcome: Outcome) -> None:
    write_atomic(run.result_record, json.dumps({"name": run.name, **asdict(outcome)}, indent=2) + "\n")
    write_atomic(run.result, outcome.text)


def outcome_before(run: Run) -> Outcome:
    """How a run ended that an earlier driver started. Only the driver knows wall time and device: its record has them.

    A driver that was killed right after the run ended has left none; then the trainer's clock counts.
    """
    assert run.state() in STATUS_OF_STATE, f"{run.run_dir} has not ended"
    record = read_object(run.result_record) if run.result_record.exists() else {}
    wall_time = record.get("wall_time") or float(read_status(run.run_dir)["seconds"])
    return outcome_of(run, exit_code=0, wall_time=wall_time, device=record.get("device", "N/A"))


class SummaryLog:
    """A header, a line per run as it ends, and at the end all of them in the order of the values."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self.path = path
        write_atomic(path, "\n".join(header) + "\n\n")

    def add(self, *outcomes: Outcome, title: str = "") -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(title + "".join(outcome.text for outcome in outcomes))

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        self.add(*outcomes, title="\n=== Summary ===\n")
