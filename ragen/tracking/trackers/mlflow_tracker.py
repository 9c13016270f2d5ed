"""MLflow: a SQLite database and files in <run directory>/mlflow, without a server, an account or a network.

Each new run has a database of its own, since MLflow keeps those that it opened for as long as the process lives.
A resumed run continues the newest.

Tested in tests/tracking/test_mlflow_tracker.py.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config.load import to_dict
from ragen.errors import ConfigError
from ragen.tracking.rundir import State

if TYPE_CHECKING:
    from ragen.tracking.tracker import RunFacts

STATES: dict[State, str] = {
    "finished": "FINISHED",
    "early_stopped": "FINISHED",
    "interrupted": "KILLED",
    "failed": "FAILED",
}
"""How MLflow calls the end of a run; the tag `status` keeps our word."""
NOT_IN_NAMES = re.compile(r"[^\w\-. :/]", re.ASCII)
"""What MLflow refuses in the name of a metric or parameter."""
NOT_IN_ADDRESS = "?%"
"""What would end or change the path in the address of a database."""
BATCH = 100
"""Parameters, or tags, that MLflow takes at a time."""
MAX_LENGTH = 6000
"""Characters of a parameter; config.yaml has them all."""


class MlflowTracker:
    """Metrics over the training step, the configuration as parameters, tables as JSON files."""

    def __init__(self, run: RunFacts) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it counts usage over the network; read at import
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # a line for each table it creates
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._metric = Metric
        folder = run.path.resolve() / "mlflow"
        former = sorted(folder.glob("*.db")) if run.resumed_step is not None else []
        database = former[-1] if former else folder / f"{time.strftime('%Y%m%d_%H%M%S')}_{secrets.token_hex(2)}.db"
        address = _address(database)
        folder.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(tracking_uri=address)
        self._run_id = self._continue(run) if former else None
        if self._run_id is None:
            self._run_id = self._begin(run, folder / "artifacts")
        elif run.resumed_step is not None:
            drop_after(database, self._run_id, run.resumed_step)
        self._log_parameters(run)
        print(f"MLflow: mlflow ui --backend-store-uri {address}", file=sys.stderr, flush=True)

    def _begin(self, run: RunFacts, artifacts: Path) -> str:
        trainer = run.config.trainer
        found = self._client.get_experiment_by_name(trainer.project_name)
        experiment = (
            found.experiment_id
            if found
            else self._client.create_experiment(trainer.project_name, artifact_location=artifacts.as_uri())
        )
        return self._client.create_run(experiment, run_name=trainer.experiment_name).info.run_id

    def _continue(self, run: RunFacts) -> str | None:
        """The run of the database, which runs again; None where a killed process had not come to create it."""
        experiment = self._client.get_experiment_by_name(run.config.trainer.project_name)
        found = self._client.search_runs([experiment.experiment_id]) if experiment else []
        if not found:
            return None
        self._client.update_run(found[0].info.run_id, status="RUNNING")
        return found[0].info.run_id

    def _log_parameters(self, run: RunFacts) -> None:
        """Parameters cannot be changed: what is another value in a resumed run becomes a tag."""
        from mlflow.entities import Param, RunTag

        logged = self._client.get_run(self._run_id).data.params
        now = {_name(key): _cut(value) for key, value in flat(to_dict(run.config))}
        new = [Param(key, value) for key, value in now.items() if key not in logged]
        changed = [
            RunTag(f"from_step_{run.resumed_step}.{key}", value)
            for key, value in now.items()
            if logged.get(key, value) != value
        ]
        for start in range(0, len(new), BATCH):
            self._client.log_batch(self._run_id, params=new[start : start + BATCH])
        for start in range(0, len(changed), BATCH):
            self._client.log_batch(self._run_id, tags=changed[start : start + BATCH])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        rows = [self._metric(_name(name), value, now, step) for name, value in metrics.items()]
        for start in range(0, len(rows), 10 * BATCH):
            self._client.log_batch(self._run_id, metrics=rows[start : start + 10 * BATCH])

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        text = json.dumps({"columns": list(columns), "data": [list(row) for row in rows]}, default=str)
        self._client.log_text(self._run_id, text, f"tables/{_name(name).replace('/', '.')}_step_{step}.json")

    def close(self, status: State) -> None:
        self._client.set_tag(self._run_id, "status", status)
        self._client.set_terminated(self._run_id, STATES.get(status, "FAILED"))


def drop_after(database: Path, run_id: str, step: int) -> None:
    """Remove the metrics of later steps, which a resumed run logs again; MLflow itself would show both."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("metrics", "latest_metrics"):
            connection.execute(f"DELETE FROM {table} WHERE run_uuid = ? AND step > ?", (run_id, step))
        columns = "key, value, timestamp, step, is_nan, run_uuid"
        connection.execute(
            f"INSERT OR IGNORE INTO latest_metrics ({columns}) SELECT {columns} FROM metrics AS one WHERE run_uuid = ? "
            "AND step = (SELECT MAX(step) FROM metrics WHERE run_uuid = one.run_uuid AND key = one.key)",
            (run_id,),
        )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """{"a": {"b": [1, 2]}, "c": "x"} -> ("a.b", "[1, 2]"), ("c", "x")"""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _name(name: str) -> str:
    """train/A/pass@8 -> train/A/pass_at_8, which MLflow accepts."""
    return NOT_IN_NAMES.sub("_", name.replace("@", "_at_"))


def _cut(value: str) -> str:
    return value if len(value) <= MAX_LENGTH else f"{value[: MAX_LENGTH - 3]}..."


def _address(database: Path) -> str:
    if wrong := [sign for sign in NOT_IN_ADDRESS if sign in str(database)]:
        raise ConfigError(
            f"trainer.logger: mlflow cannot write to {database}, whose path holds {' '.join(wrong)}. Choose another "
            "trainer.default_local_dir, or leave mlflow out."
        )
    return f"sqlite:///{database}"
