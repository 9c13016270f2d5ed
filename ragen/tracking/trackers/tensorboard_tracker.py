"""TensorBoard: `tensorboard --logdir <run directory>/tensorboard`.

Tested in tests/tracking/test_tensorboard_tracker.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragen.tracking.console import markdown_table
from ragen.tracking.rundir import State

if TYPE_CHECKING:
    from ragen.tracking.tracker import RunFacts

MAX_ROWS = 100
"""Rows of a table that are shown; the run directory has them all."""


class TensorboardTracker:
    """Scalars over the training step; tables as text."""

    def __init__(self, run: RunFacts) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What a killed run wrote after its last checkpoint is hidden; the resumed run writes it again.
        purge_step = 0 if run.resumed_step is None else run.resumed_step + 1
        self._writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=purge_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._writer.add_text(name, markdown_table(columns, rows[:MAX_ROWS]), global_step=step)
        self._writer.flush()

    def close(self, status: State) -> None:
        self._writer.close()
