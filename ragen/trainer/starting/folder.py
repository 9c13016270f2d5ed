"""The folder of a run: what belongs to a run in it, what a killed one left half written, and how it is moved aside."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from ragen.errors import ConfigError
from ragen.tracking.run_card import CARD, PAGE
from ragen.tracking.rundir import PREFLIGHT, TRACKERS_FOLDER
from ragen.trainer.checkpoints.checkpoint import (
    BEST,
    LATEST,
    STEP_FOLDER,
    is_within,
    name_newest,
    step_folders,
    step_of,
)

OWN_NAMES = (
    # What names a checkpoint goes first: a move that is cut short leaves nothing that would be resumed.
    LATEST,
    BEST,
    "status.json",
    "config.yaml",
    PREFLIGHT,
    CARD,
    PAGE,
    "metrics.jsonl",
    "metrics.dropped.jsonl",
    "tables",
    "episodes",
    "wandb",
    "tensorboard",
    "mlflow",
    "trackio",
    TRACKERS_FOLDER,
    "learning_curve.png",
    "collapse.png",
    "global_step_*",
    "validation_of_step_*",
)
"""What a run writes into its folder, as patterns; the lock stays where it is."""

HALF_WRITTEN = re.compile(
    r"\.(global_step_\d+|outdated_\d+|[\w.]+_iteration\.txt|status\.json|preflight\.json|card\.(?:json|md)|config\.yaml|metrics\.jsonl"
    r"|[\w.-]+_step_\d+\.jsonl?(\.gz)?)\.\d+\.tmp"
)
"""Names under which a run writes before it renames."""


def take_over(root: Path, checkpoint: Path | None, *, is_branch: bool) -> Path | None:
    """Make the folder this run's: what a former run left is moved to `<root>.<time>`, unless this one continues it.

    Returns where to; None where nothing was moved. `is_branch`: it continues from any of the checkpoints, not from the
    newest.
    """
    clear_half_written(root)
    if checkpoint is None or not is_within(checkpoint, root):
        others = {path for path in root.glob("global_step_*") if not STEP_FOLDER.fullmatch(path.name)}
        return move([path for name in OWN_NAMES for path in sorted(root.glob(name)) if path not in others], root)
    name_newest(root, step_of(checkpoint))
    newer = [folder for folder in step_folders(root) if step_of(folder) > step_of(checkpoint)]
    return move(newer, root) if is_branch else None


def move(entries: list[Path], root: Path) -> Path | None:
    if not entries:
        return None
    aside = _free_name(root.resolve())
    try:
        aside.mkdir()
        for entry in entries:
            shutil.move(entry, aside / entry.name)
    except OSError as error:
        raise ConfigError(
            f"{root} holds another run, which cannot be moved to {aside} ({error.strerror}). Give this run a folder of "
            "its own: trainer.experiment_name or trainer.default_local_dir."
        ) from error
    return aside


def _free_name(root: Path) -> Path:
    stem = time.strftime(f"{root.name}.%Y%m%d_%H%M%S")
    names = (root.with_name(stem if number == 1 else f"{stem}_{number}") for number in range(1, 1000))
    return next(path for path in names if not path.exists())


def clear_half_written(root: Path) -> None:
    """Remove what a killed run was writing, by the names a run gives; whatever else is there is somebody's."""
    for folder in (root, root / "tables", root / "episodes"):
        for path in folder.glob(".*.tmp"):
            if not HALF_WRITTEN.fullmatch(path.name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
