"""Trackio: a SQLite database in <run directory>/trackio, without a server, an account or a network.

Rows go straight to Trackio's storage. `trackio.init` writes to one folder per process, asks the hub for the user's
name, prints on the terminal, and a thread of its own turns faults into warnings; the storage raises them.

Tested in tests/tracking/test_trackio_tracker.py.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config.load import to_dict
from ragen.tracking.rundir import State, write_atomic

if TYPE_CHECKING:
    from ragen.tracking.tracker import RunFacts


class TrackioTracker:
    """Metrics and tables over the training step, and the configuration."""

    def __init__(self, run: RunFacts) -> None:
        from trackio import sqlite_storage

        self._module = sqlite_storage
        self._storage: Any = sqlite_storage.SQLiteStorage
        self._folder = run.path.resolve() / "trackio"
        self._project = run.config.trainer.project_name
        self._name = run.config.trainer.experiment_name
        self._storage.validate_project_name(self._project)
        run_id_file = self._folder / "run_id.txt"
        is_resumed = run.resumed_step is not None and run_id_file.exists()
        self._run_id = run_id_file.read_text().strip() if is_resumed else secrets.token_hex(16)
        write_atomic(run_id_file, self._run_id + "\n")
        with self._own_folder():
            database = self._storage.init_db(self._project)
        if run.resumed_step is not None:
            drop_after(database, self._run_id, run.resumed_step)
        # What `trackio.init` adds to the configuration of a run.
        created = {"_Username": None, "_Created": datetime.now(UTC).isoformat(), "_Group": None}
        self._config: dict[str, Any] | None = to_dict(run.config) | created
        show = f"TRACKIO_DIR={self._folder} trackio show --project {self._project}"
        print(f"Trackio: {show}", file=sys.stderr, flush=True)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write(step, dict(metrics))

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        from trackio import Table

        table: Any = Table(columns=list(columns), data=[[_cell(value) for value in row] for row in rows])
        self._write(step, {name: table._to_dict(project=self._project, run=self._name, step=step)})

    def close(self, status: State) -> None:
        """Nothing is open, and Trackio knows no state of a run; status.json has it."""

    def _write(self, step: int, values: dict[str, Any]) -> None:
        with self._own_folder():
            self._storage.bulk_log(
                project=self._project,
                run=self._name,
                run_id=self._run_id,
                metrics_list=[values],
                steps=[step],
                config=self._config,
            )
        self._config = None  # once

    @contextmanager
    def _own_folder(self) -> Iterator[None]:
        """Trackio's storage reads its folder from the module; a process may train several runs."""
        before = self._module.TRACKIO_DIR
        self._module.TRACKIO_DIR = self._folder
        try:
            yield
        finally:
            self._module.TRACKIO_DIR = before


def drop_after(database: Path, run_id: str, step: int) -> None:
    """Remove later steps, which a resumed run logs again; Trackio itself would show both."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM metrics WHERE run_id = ? AND step > ?", (run_id, step))


def _cell(value: Any) -> Any:
    """Models may write lone surrogates, which no file can hold."""
    if isinstance(value, int | float | bool | None):
        return value
    return str(value).encode(errors="replace").decode()
