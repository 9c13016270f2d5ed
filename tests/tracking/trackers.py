"""The trackers of a run that does not train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragen.config import Config, load_config
from ragen.tracking.rundir import RunDir
from ragen.tracking.tracker import Trackers


def config_of_loggers(*names: str) -> Config:
    config = load_config("base", ["trainer.project_name=my_project", "trainer.experiment_name=my_run"])
    return replace(config, trainer=replace(config.trainer, logger=names))


def some_trackers(path: Path, *names: str, total_steps: int = 9, resumed_step: int | None = None) -> Trackers:
    config = config_of_loggers(*names)
    return Trackers(config, RunDir(path), total_steps=total_steps, resumed_step=resumed_step)
