"""`ragen verify-resume`: a run that is killed and resumed equals the run that was not, proven for a configuration.

The run is made three times in processes of its own: straight to the end; again, with SIGKILL after a step; and that one
resumed. Then every metric of every step and every tensor of the last checkpoint are compared, bit for bit. With
--kills N, runs are killed at random moments, again and again, until N kills have changed nothing.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from ragen.config import argument_parser, config_from_args, load_config
from ragen.errors import ConfigError, RagenError, reporting_errors
from ragen.tracking.names import without_times
from ragen.tracking.rundir import read_metrics
from ragen.trainer.checkpoint import LATEST

"""Metrics that are read off a clock."""

POLL_S = 0.005


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
    options = ["--config-name", config_name, *(["--config-dir", config_dir] if config_dir else [])]
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
    load_config(config_name, changes, config_dir)  # mistakes are told before anything is started
    with tempfile.TemporaryDirectory(prefix="ragen-verify-resume-") as temporary:
        folder = keep or Path(temporary)
        if kills:
            difference, proven = verify_often([*options, *changes], folder, num_kills=kills, seed=seed)
            how = f"{kills} kills"
        else:
            difference, proven = verify([*options, *changes], folder, num_steps=steps, kill_at=kill_at)
            how = f"killed after {kill_at}"
    if difference:
        print(f"DIFFERS: {difference}")
        return 1
    print(f"PROVEN: {proven} are equal, bit for bit ({config_name}, {steps} steps, {how}).")
    return 0


def verify(arguments: Sequence[str], folder: Path, *, num_steps: int, kill_at: int) -> tuple[str | None, str]:
    """The first difference, or None, and what was compared."""
    straight, resumed = folder / "straight", folder / "resumed"
    for path in (straight, resumed):
        if path.exists():
            raise ConfigError(f"{path} exists already. Give --keep another folder.")
        path.mkdir(parents=True)
    with _stage(f"1/3 {num_steps} steps, straight"):
        _finish(_start(arguments, straight), straight)
    with _stage(f"2/3 the same run, killed after step {kill_at}"):
        _kill_after(kill_at, _start(arguments, resumed), resumed)
    with _stage("3/3 resumed"):
        _finish(_start(arguments, resumed), resumed)
    if _moved_aside(resumed):
        return "the killed run started over instead of resuming.", ""
    return compare(straight, resumed)


def verify_often(arguments: Sequence[str], folder: Path, *, num_kills: int, seed: int) -> tuple[str | None, str]:
    """The first difference, or None, and what was compared, over runs that are killed until they come to their end.

    A kill is SIGKILL three times out of four, else SIGTERM, at a random moment of the time a straight run takes. Runs
    are forked from this process, which has loaded the libraries: kills meet the run and not its imports.
    """
    from ragen.trainer import restart  # noqa: F401 - torch, before the first fork

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    rng, straight = random.Random(seed), folder / "straight"
    straight.mkdir(parents=True)
    with _stage("straight"):
        began = time.monotonic()
        process = _fork(arguments, straight)
        process.join()
        length = time.monotonic() - began
        if process.exitcode:
            raise RagenError(f"the training run failed:\n{_tail(straight)}")
    counts, num_runs, proven = {signal.SIGKILL: 0, signal.SIGTERM: 0}, 0, ""
    while sum(counts.values()) < num_kills:
        run = folder / f"killed_{num_runs}"
        run.mkdir()
        while (number := _kill_somewhere(rng, _fork(arguments, run), run, length)) is not None:
            counts[number] += 1
        difference, proven = _compare_apart(straight, run)
        if difference:
            return f"{run.name}, {sum(counts.values())} kills: {difference}", ""
        num_runs += 1
        print(f"{sum(counts.values())} kills, {num_runs} runs, all equal", flush=True)
        for path in (run, *_moved_aside(run)):
            shutil.rmtree(path)
    kills = f"{counts[signal.SIGKILL]} times SIGKILL, {counts[signal.SIGTERM]} times SIGTERM"
    return None, f"in each of {num_runs} runs ({kills}) {proven}"


def _compare_apart(straight: Path, run: Path) -> tuple[str | None, str]:
    """`compare` in a copy of this process: once torch has computed something with threads, forks of it hang."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(compare(straight, run)))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        raise RagenError(f"{straight} and {run} cannot be compared.") from error
    finally:
        process.join()


def _fork(arguments: Sequence[str], run: Path) -> ForkProcess:
    """`ragen train` in a copy of this process."""
    from ragen.trainer.command import run as train

    def work() -> None:
        log = os.open(_log_of(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        args = argument_parser("").parse_args([*arguments, f"trainer.default_local_dir='{run}'"])
        sys.exit(reporting_errors(lambda: train(config_from_args(args)), outlives_reader=True))

    process = get_context("fork").Process(target=work)
    process.start()
    return process


def _kill_somewhere(rng: random.Random, process: ForkProcess, run: Path, length: float) -> signal.Signals | None:
    """End a process within `length` seconds; by what, or None when it came to its end before."""
    number = rng.choice([signal.SIGKILL] * 3 + [signal.SIGTERM])
    process.join(timeout=rng.uniform(0, length))
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join()
    if process.exitcode == 0:
        return None
    if process.exitcode not in (-number, 128 + number):
        raise RagenError(f"the training run failed:\n{_tail(run)}")
    return number


def _moved_aside(run: Path) -> list[Path]:
    """What a start that did not resume has put away."""
    return list(run.parent.glob(f"{run.name}.[0-9]*"))


def compare(straight: Path, resumed: Path) -> tuple[str | None, str]:
    """The first metric or tensor in which two runs differ, or None, and how many there are."""
    expected, found = _metrics(straight), _metrics(resumed)
    if list(expected) != list(found):
        return f"steps {list(expected)} were logged without the kill, {list(found)} with it.", ""
    for step, row in expected.items():
        for name in sorted(row.keys() | found[step].keys()):
            one, other = row.get(name), found[step].get(name)
            if not _is_same(one, other):
                return f"step {step}, metric {name}: {one} without the kill, {other} with it.", ""
    num_tensors = 0
    for name, one, other in _tensors(straight, resumed):
        num_tensors += 1
        if other is None or one is None:
            return f"{name} is in one of the two last checkpoints only.", ""
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{name}: {one.dtype} {tuple(one.shape)} without the kill, {other.dtype} {tuple(other.shape)}.", ""
        if not _as_bytes(one).equal(_as_bytes(other)):
            gap = (one.double() - other.double()).abs().max().item()
            return f"{name}: the largest difference is {gap:.3g}.", ""
    num_metrics = sum(map(len, expected.values()))
    return None, f"{num_metrics} metrics of {len(expected)} steps and {num_tensors} tensors of the last checkpoint"


def _metrics(run: Path) -> dict[int, dict[str, Any]]:
    return {row["step"]: without_times(row) for row in read_metrics(run)}


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other


def _tensors(straight: Path, resumed: Path) -> Iterator[tuple[str, Any, Any]]:
    """Name and both values of every tensor of the last checkpoints."""
    one, other = (_load(run) for run in (straight, resumed))
    for name in sorted(one.keys() | other.keys()):
        yield name, one.get(name), other.get(name)


def _load(run: Path) -> Mapping[str, Any]:
    from safetensors.torch import load_file

    if not (run / LATEST).exists():
        return {}
    folder = run / f"global_step_{(run / LATEST).read_text().strip()}"
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{path.relative_to(folder)}: {key}": value for path in files for key, value in load_file(path).items()}


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


def _start(arguments: Sequence[str], run: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ragen.cli", "train", *arguments, f"trainer.default_local_dir='{run}'"]
    with open(_log_of(run), "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def _log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def _finish(process: subprocess.Popen[bytes], run: Path) -> None:
    try:
        if process.wait():
            raise RagenError(f"the training run failed:\n{_tail(run)}")
    finally:
        process.kill()


def _kill_after(step: int, process: subprocess.Popen[bytes], run: Path) -> None:
    """SIGKILL once the metrics of `step` are written."""
    try:
        while process.poll() is None:
            if (run / "metrics.jsonl").exists() and any(row["step"] >= step for row in read_metrics(run)):
                process.send_signal(signal.SIGKILL)
                process.wait()
            else:
                time.sleep(POLL_S)
    finally:
        process.kill()
    if process.returncode != -signal.SIGKILL:
        raise RagenError(f"the training run ended before it could be killed; give more --steps.\n{_tail(run)}")


def _tail(run: Path) -> str:
    return "\n".join(_log_of(run).read_text(errors="replace").splitlines()[-15:])
