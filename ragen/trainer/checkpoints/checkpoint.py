"""Checkpoints: Hugging Face directories, safetensors and JSON; whole or not at all.

    <root>/global_step_<N>/actor/    a directory that from_pretrained opens, optimizer.safetensors, a model card
    <root>/global_step_<N>/critic/   likewise, where there is a critic
    <root>/global_step_<N>/trainer_state.json, checksums.json
    <root>/latest_checkpointed_iteration.txt   N

A checkpoint is written under another name, synced to disk and renamed; the file that names the newest comes last. A
run killed at any moment finds the previous checkpoint or the new one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ragen.errors import ConfigError, FileError
from ragen.files import read_object, read_text, value_at
from ragen.tracking.rundir import write_atomic
from ragen.trainer.card import CARD
from ragen.trainer.checkpoints.checksums import Settled, sync

LATEST = "latest_checkpointed_iteration.txt"
BEST = "best_checkpointed_iteration.txt"
STATE = "trainer_state.json"
STATE_KINDS = {
    "origin": dict,
    "train_seed": int,
    "early_stop": dict,
    "kl_controller": (dict, type(None)),
    "collapse": dict,
    "timers": dict,
    "metrics": dict,
    "stop": (str, type(None)),
}
"""What every version has written."""
STEP_FOLDER = re.compile(r"global_step_(\d+)")


def step_of(folder: Path) -> int:
    """The step in the name of a checkpoint folder."""
    match = STEP_FOLDER.fullmatch(folder.name)
    if match is None:
        raise ConfigError(f"trainer.resume_from_path={folder}: expected a folder named global_step_<N>.")
    return int(match[1])


def is_within(checkpoint: Path, root: Path) -> bool:
    """Whether a checkpoint is one of the run in `root`."""
    return checkpoint.resolve().parent == root.resolve()


def step_folders(root: Path) -> list[Path]:
    """All checkpoints of a run, the highest step first."""
    found = [path for path in root.glob("global_step_*") if STEP_FOLDER.fullmatch(path.name)]
    return sorted(found, key=step_of, reverse=True)


def find_resume(resume_mode: str, resume_from_path: str | None, root: Path) -> Path | None:
    """The checkpoint to continue from, or None to start from scratch."""
    if resume_mode == "disable":
        return None
    if resume_mode == "resume_path":
        folder = Path(resume_from_path or "")
        step_of(folder)
        if not (folder / "actor").is_dir():
            raise ConfigError(
                f"trainer.resume_from_path={folder} has no actor folder. Give an existing global_step_<N> folder."
            )
        return folder
    folder = named_checkpoint(root)
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            f"{root / LATEST} names {folder.name}, which is not there. Name another checkpoint with "
            "trainer.resume_mode=resume_path, or set trainer.resume_mode=disable to start over."
        )
    return folder


def named_checkpoint(root: Path, name: str = LATEST) -> Path | None:
    """The checkpoint that the file LATEST or BEST of a run names, be it there or not; None without such a file."""
    path = root / name
    return root / f"global_step_{read_text(path).strip()}" if path.is_file() else None


def name_newest(root: Path, step: int) -> None:
    """Make the checkpoint of `step` the one to resume from."""
    write_atomic(root / LATEST, f"{step}\n")


def name_best(root: Path, step: int) -> None:
    """Make the checkpoint of `step` the one that no rotation removes."""
    if (root / f"global_step_{step}").is_dir():
        write_atomic(root / BEST, f"{step}\n")
    else:  # of the run this one was begun from
        (root / BEST).unlink(missing_ok=True)


def find_best(root: Path) -> Path | None:
    """The checkpoint with the best validation; None where none is kept (trainer.keep_best)."""
    folder = named_checkpoint(root, BEST)
    return folder if folder is not None and folder.is_dir() else None


def save_checkpoint(
    root: Path,
    step: int,
    roles: Mapping[str, Callable[[Path], None]],
    state: Mapping[str, Any] | None,
    *,
    cards: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint; each role gets an empty folder of its own to write into. `state` None: weights only.

    `cards` are the model cards of roles that have one.
    """
    final = root / f"global_step_{step}"
    temporary = root / f".global_step_{step}.{os.getpid()}.tmp"
    outdated = root / f".outdated_{step}.{os.getpid()}.tmp"
    for leftover in (temporary, outdated):  # this process was interrupted before, or one that had its number
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with Settled(temporary) as settled:
            for role, write in roles.items():
                folder = temporary / role
                folder.mkdir(parents=True)
                write(folder)
                if cards and role in cards:
                    (folder / CARD).write_text(cards[role], encoding="utf-8")
                settled.add(folder)
            if state is not None:
                (temporary / STATE).write_text(json.dumps(state, indent=2) + "\n")
            settled.write()
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, (OSError, SafetensorError)):
            raise FileError(
                f"The checkpoint {final} cannot be written: {error}. Earlier checkpoints are whole. Free some space, "
                "or check the folder; the same command resumes from the newest one."
            ) from error
        raise
    if final.exists():  # a resumed run reached the same step again
        final.rename(outdated)
    temporary.rename(final)
    sync(root)
    name_newest(root, step)
    shutil.rmtree(outdated, ignore_errors=True)
    return final


def read_state(folder: Path, kinds: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """The state beside the weights of a checkpoint; None in one that holds weights only. A value that is not of its
    kind is refused."""
    path = folder / STATE
    if not path.exists():
        return None
    state = read_object(path)
    for key, kind in (kinds or {}).items():
        if not isinstance(found := value_at(state, key, path), kind):
            raise FileError(f"{path}: {key} is {found!r:.60}, which no run writes. Restore the file.")
    return state


def rotate(root: Path, keep: Mapping[str, int | None], *, latest: int) -> None:
    """Remove the oldest role folders beyond `keep` (None: all are kept), and checkpoints without any.

    The best one stays, whatever its age.
    `latest` is the newest step. Higher ones were left by a run that was started over: they go first.
    """
    folders = sorted(step_folders(root), key=lambda folder: step_of(folder) <= latest, reverse=True)
    best = find_best(root)
    for role, count in keep.items():
        if count is not None:
            for folder in [folder for folder in folders if (folder / role).is_dir()][count:]:
                if folder != best:
                    shutil.rmtree(folder / role)
    for folder in folders:
        if not any(path.is_dir() for path in folder.iterdir()):
            shutil.rmtree(folder)
