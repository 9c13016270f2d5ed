"""`ragen verify-resume`: a run that is killed and resumed equals the run that was not, proven for a configuration.

The run is made three times in processes of its own: straight to the end; again, with SIGKILL after a step; and that one
resumed. Then every metric of every step and every tensor of the last checkpoint are compared, bit for bit. With
--kills N, runs are killed at random moments, again and again, until N kills have changed nothing.

Runs are forked from this process, which has loaded the libraries: random kills meet the run and not its imports. Once
torch has computed something with threads, forks of a process hang, so comparing is done in a fork, too.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import active_children, get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from ragen.config import load_config
from ragen.errors import ConfigError, RagenError, reporting_errors
from ragen.tracking.names import without_times
from ragen.tracking.rundir import read_metrics, read_records
from ragen.trainer.checkpoints.checkpoint import named_checkpoint, step_of

POLL_S = 0.005
FORK = get_context("fork")

Start = Callable[[Path], ForkProcess]
"""Starts the run in a folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What was found when runs were compared."""

    difference: str | None
    """The first metric or tensor that differs; None when nothing does."""
    compared: str = ""
    """What was compared."""


def verify_resume(
    *,
    config_name: str,
    config_dir: str | None,
    overrides: Sequence[str],
    steps: int,
    kill_at: int | None,
    kills: int | None,
    seed: int,
    keep: Path | None,
) -> int:
    """Print whether it is proven for this configuration; 0 if it is."""
    kill_at = max(1, steps // 2) if kill_at is None else kill_at
    if not 1 <= kill_at < steps:
        raise ConfigError(f"--kill-at is {kill_at}, --steps is {steps}. Kill after step 1 or later, before the last.")
    changes = [
        *overrides,
        f"trainer.total_training_steps={steps}",
        "trainer.save_freq=1",
        "trainer.logger=[]",
        "trainer.resume_mode=auto",
        "trainer.resume_from_path=null",
        "trainer.rollout_data_dir=null",
        "trainer.validation_data_dir=null",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra]",
        "critic.checkpoint.save_contents=[model,optimizer,extra]",
    ]
    load_config(config_name, changes, config_dir)  # mistakes are reported before anything is started
    from ragen.trainer import build  # noqa: F401 - torch, before the first fork

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    start = partial(_start, config_name, changes, config_dir)
    with tempfile.TemporaryDirectory(prefix="ragen-verify-resume-") as temporary, _ending_runs():
        folder = keep or Path(temporary)
        if kills:
            found, how = verify_often(start, folder, num_kills=kills, seed=seed), f"{kills} kills"
        else:
            found, how = verify(start, folder, num_steps=steps, kill_at=kill_at), f"killed after {kill_at}"
    if found.difference:
        print(f"DIFFERS: {found.difference}")
        return 1
    print(f"PROVEN: {found.compared} are equal, bit for bit ({config_name}, {steps} steps, {how}).")
    return 0


def verify(start: Start, folder: Path, *, num_steps: int, kill_at: int) -> Comparison:
    """A run that is killed once, after a step, against the straight one."""
    straight, resumed = _new_folder(folder / "straight"), _new_folder(folder / "resumed")
    with _stage(f"1/3 {num_steps} steps, straight"):
        _finish(start(straight), straight)
    with _stage(f"2/3 the same run, killed after step {kill_at}"):
        process = start(resumed)
        while process.exitcode is None and not (_has_logged(resumed, kill_at) and _has_saved(resumed, kill_at)):
            process.join(POLL_S)
        if _kill(process, signal.SIGKILL, resumed) is None:
            raise RagenError(f"the training run ended before it could be killed; give more --steps.\n{_tail(resumed)}")
    with _stage("3/3 resumed"):
        _finish(start(resumed), resumed)
    if _moved_aside(resumed):
        return Comparison(difference="the killed run started over instead of resuming.")
    return _in_fork(lambda: compare(straight, resumed))


def verify_often(start: Start, folder: Path, *, num_kills: int, seed: int) -> Comparison:
    """Runs that are killed until they come to their end, against the straight one.

    A kill is SIGKILL three times out of four, else SIGTERM, at a random moment of the time a straight run takes.
    """
    rng, straight = random.Random(seed), _new_folder(folder / "straight")
    with _stage("straight"):
        began = time.monotonic()
        _finish(start(straight), straight)
        length = time.monotonic() - began
    counts, num_runs, compared = {signal.SIGKILL: 0, signal.SIGTERM: 0}, 0, ""
    while sum(counts.values()) < num_kills:
        run = _new_folder(folder / f"killed_{num_runs}")
        while True:
            number = rng.choice([signal.SIGKILL] * 3 + [signal.SIGTERM])
            process = start(run)
            process.join(timeout=rng.uniform(0, length))
            if _kill(process, number, run) is None:
                break
            counts[number] += 1
        found = _in_fork(lambda run=run: compare(straight, run))
        if found.difference:
            return Comparison(difference=f"{run.name}, {sum(counts.values())} kills: {found.difference}")
        num_runs, compared = num_runs + 1, found.compared
        print(f"{sum(counts.values())} kills, {num_runs} runs, all equal", flush=True)
        for path in (run, *_moved_aside(run)):
            shutil.rmtree(path)
    kills = f"{counts[signal.SIGKILL]} times SIGKILL, {counts[signal.SIGTERM]} times SIGTERM"
    return Comparison(difference=None, compared=f"in each of {num_runs} runs ({kills}) {compared}")


# --- runs -----------------------------------------------------------------------------------------------------------


def _start(config_name: str, changes: Sequence[str], config_dir: str | None, run: Path) -> ForkProcess:
    """`ragen train` in a copy of this process."""
    from ragen.trainer.train import train

    def work() -> None:
        log = os.open(_log_of(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        config = load_config(config_name, [*changes, f"trainer.default_local_dir='{run}'"], config_dir)
        sys.exit(reporting_errors(lambda: train(config), outlives_reader=True))

    process = FORK.Process(target=work)
    process.start()
    return process


@contextmanager
def _ending_runs() -> Iterator[None]:
    """Whoever interrupts this leaves no run behind."""
    try:
        yield
    finally:
        for process in active_children():
            process.kill()
            process.join()


def _finish(process: ForkProcess, run: Path) -> None:
    process.join()
    if process.exitcode:
        raise RagenError(f"the training run failed:\n{_tail(run)}")


def _kill(process: ForkProcess, number: signal.Signals, run: Path) -> signal.Signals | None:
    """End a process; None when it came to its end before."""
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join()
    if process.exitcode == 0:
        return None
    if process.exitcode not in (-number, 128 + number):
        raise RagenError(f"the training run failed:\n{_tail(run)}")
    return number


def _has_logged(run: Path, step: int) -> bool:
    return any(row["step"] >= step for row in read_records(run))


def _has_saved(run: Path, step: int) -> bool:
    """Its checkpoint is written beside the next step: before that there is nothing to resume from."""
    newest = named_checkpoint(run)
    return newest is not None and step_of(newest) >= step


def _new_folder(path: Path) -> Path:
    if path.exists():
        raise ConfigError(f"{path} exists already. Give --keep another folder.")
    path.mkdir(parents=True)
    return path


def _moved_aside(run: Path) -> list[Path]:
    """What a start that did not resume has put away."""
    return list(run.parent.glob(f"{run.name}.[0-9]*"))


def _log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def _tail(run: Path) -> str:
    return "\n".join(_log_of(run).read_text(errors="replace").splitlines()[-15:])


# --- comparing ------------------------------------------------------------------------------------------------------


def _in_fork(work: Callable[[], Comparison]) -> Comparison:
    """What `work` returns in a copy of this process."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        raise RagenError("the runs cannot be compared.") from error
    finally:
        process.join()


def compare(straight: Path, resumed: Path) -> Comparison:
    """The first metric or tensor in which two runs differ, and how many there are."""
    metrics, tensors = _metrics(straight), _tensors(straight)
    differences = chain(
        _metric_differences(metrics, _metrics(resumed)), _tensor_differences(tensors, _tensors(resumed))
    )
    compared = f"{sum(map(len, metrics.values()))} metrics of {len(metrics)} steps and {len(tensors)} tensors"
    return Comparison(difference=next(differences, None), compared=f"{compared} of the last checkpoint")


def _metrics(run: Path) -> dict[int, dict[str, Any]]:
    return {row["step"]: without_times(row) for row in read_metrics(run)}


def _metric_differences(straight: Mapping[int, Any], resumed: Mapping[int, Any]) -> Iterator[str]:
    if list(straight) != list(resumed):
        yield f"steps {list(straight)} were logged without the kill, {list(resumed)} with it."
        return
    for step, row in straight.items():
        for name in sorted(row.keys() | resumed[step].keys()):
            one, other = row.get(name), resumed[step].get(name)
            is_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
            if one != other and not is_nan:
                yield f"step {step}, metric {name}: {one} without the kill, {other} with it."


def _tensors(run: Path) -> dict[str, Any]:
    """Every tensor of the last checkpoint, by file and name."""
    from safetensors.torch import load_file

    folder = named_checkpoint(run)
    if folder is None:
        return {}
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{path.relative_to(folder)}: {key}": value for path in files for key, value in load_file(path).items()}


def _tensor_differences(straight: Mapping[str, Any], resumed: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(straight.keys() | resumed.keys()):
        one, other = straight.get(name), resumed.get(name)
        if one is None or other is None:
            yield f"{name} is in one of the two last checkpoints only."
        elif one.dtype != other.dtype or one.shape != other.shape:
            yield f"{name}: {one.dtype} {tuple(one.shape)} without the kill, {other.dtype} {tuple(other.shape)}."
        elif not _as_bytes(one).equal(_as_bytes(other)):
            yield f"{name}: the largest difference is {(one.double() - other.double()).abs().max().item():.3g}."


def _as_bytes(tensor: Any) -> Any:
    """What lies in memory: nan equals nan, and 0 is not -0."""
    import torch

    return tensor.reshape(-1).view(torch.uint8)


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Prints what is done, and how long it took."""
    print(f"{name} ...", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    finally:
        print(f" {time.monotonic() - started:.1f} s", flush=True)
