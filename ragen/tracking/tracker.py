"""Where the numbers of a run go: always into the run directory, and to the trackers that `trainer.logger` names.

    with Trackers(config, RunDir(path), total_steps=100, resumed_step=None) as trackers:
        trackers.log(step, metrics)
        trackers.close("early_stopped", reason="...", early_stop="low_validation_success")

A tracker that cannot start stops the run; one that fails later is dropped with one warning. The run directory is no
view but the record of the run: when it cannot be written, the error travels up.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ragen.algorithms.statistics import Estimate
from ragen.config.extensions import check_takes_one, entry_points, is_path, load, refuse, unknown_name
from ragen.config.schema import Config
from ragen.errors import ConfigError, MissingExtra, RagenError, install_command
from ragen.tracking.run_card import begin_card, end_card, write_card
from ragen.tracking.rundir import RunDir, State
from ragen.tracking.trackers.console_tracker import ConsoleTracker
from ragen.tracking.trackers.mlflow_tracker import MlflowTracker
from ragen.tracking.trackers.tensorboard_tracker import TensorboardTracker
from ragen.tracking.trackers.trackio_tracker import TrackioTracker
from ragen.tracking.trackers.wandb_tracker import WandbTracker

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """A view of a run. One's own is named in trainer.logger as module:Class; it is made with the RunFacts."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a step. Steps never go back."""
        ...

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a table of a step, before or after its metrics."""
        ...

    def close(self, status: State) -> None:
        """End the view; called once."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What a tracker may want to know of a run when it starts."""

    config: Config
    path: Path
    """The run directory; a tracker of one's own writes below `path / "trackers"`, if anything."""
    total_steps: int
    """The last step, for the time that is left."""
    resumed_step: int | None
    """The step of the checkpoint the run continues from; None is a new run."""


def console(run: RunFacts) -> Tracker:
    """Lines on the terminal, or a live display of the step."""
    return ConsoleTracker(total_steps=run.total_steps, resumed_step=run.resumed_step, style=run.config.trainer.console)


TRACKERS: dict[str, Callable[[RunFacts], Tracker]] = {
    "console": console,
    "wandb": WandbTracker,
    "tensorboard": TensorboardTracker,
    "mlflow": MlflowTracker,
    "trackio": TrackioTracker,
}
"""Name -> what makes the tracker; `ragen list trackers` shows the first line of its docstring."""
KEY = "trainer.logger"
METHODS = ("log", "log_table", "close")
EXTRAS = ("wandb", "tensorboard", "mlflow", "trackio")
"""Trackers that need a package, which the extra of the same name brings."""


def check_names(names: Sequence[str]) -> None:
    """Names are known and their packages are installed; trackers of one's own are imported and looked at."""
    for name in names:
        maker(name)
        if name in EXTRAS and importlib.util.find_spec(name) is None:
            raise MissingExtra(
                f"trainer.logger names {name}, which is not installed. "
                f"Run: {install_command(name)}, or leave it out: trainer.logger=[console]"
            )


def maker(name: str) -> Callable[[RunFacts], Tracker]:
    """What makes the tracker of that name: of the table, or one's own."""
    if name in TRACKERS:
        return TRACKERS[name]
    if not (is_path(name) or name in entry_points("trackers")):
        raise ConfigError(unknown_name("trackers", name, TRACKERS, KEY))
    own = load("trackers", name, KEY)
    lacking = [method for method in METHODS if not callable(getattr(own, method, None))]
    if isinstance(own, type) and lacking:
        raise refuse("trackers", name, KEY, f"the class lacks {', '.join(lacking)}.")
    check_takes_one("trackers", name, KEY)
    return own


class Trackers:
    """The run directory and the trackers of a run, as one; `with` starts and always closes them."""

    def __init__(
        self, config: Config, run: RunDir, *, total_steps: int, resumed_step: int | None, device: str = "cpu"
    ) -> None:
        """Wrong names and missing packages raise here.

        `resumed_step` is the step of the loaded checkpoint: what was logged after it is dropped and trackers
        continue the same run. None starts anew, with new runs of the trackers; `metrics.jsonl` of a former run in the
        same folder is moved to metrics.dropped.jsonl. `device` is where the models are, for the card of the run.
        """
        check_names(config.trainer.logger)
        self.run, self.device = run, device
        self.step: int | None = resumed_step
        """The last step that was logged."""
        self._facts = RunFacts(config=config, path=run.path, total_steps=total_steps, resumed_step=resumed_step)
        self._trackers: dict[str, Tracker] = {}
        self._is_open = False

    def __enter__(self) -> Self:
        resumed_step = self._facts.resumed_step
        self.run.truncate_after(-1 if resumed_step is None else resumed_step)
        self.run.write_status("running", step=self.step)
        self._is_open = True
        write_card(
            lambda: begin_card(self.run.path, self._facts.config, device=self.device, from_step=resumed_step or 0)
        )
        for name in dict.fromkeys(self._facts.config.trainer.logger):
            try:
                self._trackers[name] = maker(name)(self._facts)
            except BaseException as error:
                self.close("failed", reason=f"the tracker {name} cannot start: {error}")
                if isinstance(error, RagenError) or not isinstance(error, Exception):
                    raise
                raise RagenError(
                    f"trainer.logger: {name} cannot start ({type(error).__name__}: {error}). "
                    f"Repair it or leave it out of trainer.logger."
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close("finished")
        elif isinstance(error, KeyboardInterrupt):
            self.close("interrupted", reason=str(error) or "interrupted by the user")
        else:
            self.close("failed", reason=f"{type(error).__name__}: {error}")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """The metrics of a step, numbers or one-element tensors, once per step."""
        assert self._is_open, "log inside `with trackers:`"
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        self.run.log(step, numbers)
        self.step = step
        self._each("log", step, numbers)

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table of a step."""
        assert self._is_open, "log_table inside `with trackers:`"
        plain = [[_cell(value) for value in row] for row in rows]
        self.run.log_table(step, name, columns, plain)
        self._each("log_table", step, name, list(columns), plain)

    def stage(self, name: str) -> None:
        """What the run is doing now, for the live display: Timers(on_stage=trackers.stage)."""
        self._each("stage", name)

    def begin_episodes(self, total: int) -> Callable[[Any], None]:
        """So many episodes are being played; call what this returns as each of them ends."""
        self._each("begin_episodes", total)
        return lambda episode: self._each("end_episode")

    def validated(self, step: int, successes: Mapping[str, Estimate], overall: Estimate) -> None:
        """The success of a validation by environment, and the mean over them."""
        self._each("validated", step, successes, overall)

    def announce(self, text: str) -> None:
        """Lines that stay on the screen, above the live display where there is one."""
        if "console" in self._trackers:
            self._each("announce", text)
        else:
            print(text, flush=True)

    def close(
        self, status: State = "finished", *, reason: str = "", early_stop: str | None = None, **facts: Any
    ) -> None:
        """Write status.json and the run card, and close every tracker. The first call counts; leaving `with` is the
        last one."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.run.write_status(status, reason, step=self.step, early_stop=early_stop, **facts)
            write_card(lambda: end_card(self.run.path))
        finally:
            self._each("close", status)
            self._trackers.clear()

    def _each(self, method: str, *arguments: Any) -> None:
        """Call a method of every tracker that has it; stages, episodes and validations are the console's alone."""
        for name, tracker in list(self._trackers.items()):
            try:
                getattr(tracker, method, _ignore)(*arguments)
            except Exception as error:
                self._drop(name, error, is_closing=method == "close")

    def _drop(self, name: str, error: Exception, *, is_closing: bool) -> None:
        tracker = self._trackers.pop(name)
        logger.warning(
            "The tracker %s failed and is off from step %s on (%s: %s). The run continues; %s has all metrics.",
            name,
            self.step,
            type(error).__name__,
            error,
            self.run.path / "metrics.jsonl",
        )
        if not is_closing:
            try:
                tracker.close("failed")
            except Exception as again:
                logger.debug("closing the tracker %s: %s", name, again)


def _ignore(*_: Any) -> None:
    """What a tracker does not show."""


def _number(name: str, value: Any) -> float:
    """A Python number; tensors and numpy scalars have `item`."""
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, int | float):
        raise TypeError(f"the metric {name} is a {type(value).__name__}, not a number; tables go to log_table")
    return float(value) if isinstance(value, bool) else value


def _cell(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
