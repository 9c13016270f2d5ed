"""Runs on several processes: comparing them with one process, and ending some of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ragen.trainer.build import build_trainer
from tests.processes import processes
from tests.trainer.runs import BANDIT, Run, small_config

# Sums over ranks round differently, by about 1e-7 of a gradient. AdamW divides by the size of the gradient, so entries
# whose gradient is next to nothing may move by up to the learning rate either way; all others agree.
METRIC_TOLERANCE = {"rel": 1e-3, "abs": 1e-5}
NORM_TOLERANCE = {"rel": 2e-5, "abs": 1e-6}
MOVED_TOLERANCE = {"rel": 2e-4, "abs": 1e-6}  # of norms, once such entries have moved
COSINE_TOLERANCE = {"abs": 2e-5}
WEIGHT_TOLERANCE = 2e-4  # a fifth of a single step of AdamW with the learning rate of these runs
NOISY = "rollout/logprob_mismatch"
VANISHED = 1e-6
"""A gradient this much shorter than that of the whole batch is rounding left of a sum that is zero; so is its angle."""


def train_on(ranks, num_ranks: int, root: Path, *changes: str, env: tuple[str, ...] = BANDIT) -> Run:
    """Train on some of the processes of `ranks`."""
    config = small_config(root, f"trainer.n_gpus_per_node={num_ranks}", *changes, env=env)
    trainer = build_trainer(config, ranks=ranks)
    assert trainer is not None, "nothing to do"
    trainer.fit()
    return Run(root)


def assert_same_run(one: Run, many: Run) -> None:
    """Episodes token by token, every metric and every saved weight, within the tolerances above."""
    assert one.outcomes.keys() == many.outcomes.keys()
    for step, row in one.outcomes.items():
        differing = {name for name in many.outcomes[step].keys() ^ row.keys() if not is_of_nothing(name, row)}
        assert not differing, f"{differing} at {step}"
        for name, value in row.items():
            if name.startswith(NOISY) or is_chance(name, row):
                continue
            norm_tolerance = NORM_TOLERANCE if step <= 1 else MOVED_TOLERANCE
            tolerance = norm_tolerance if "grad_norm" in name or "loss" in name else METRIC_TOLERANCE
            tolerance = COSINE_TOLERANCE if "cosine/" in name else tolerance
            found = many.outcomes[step][name]
            assert found == pytest.approx(value, **tolerance, nan_ok=True), f"{name} at {step}: {found} for {value}"
    last = max(one.outcomes)
    for step in range(1, last + 1):
        assert replies(many, step) == replies(one, step)
        for ours, theirs in zip(advantages(many, step), advantages(one, step), strict=True):
            assert ours == pytest.approx(theirs, abs=2e-4), f"advantages at {step}"
    for role in (folder.name for folder in (one.path / f"global_step_{last}").iterdir() if folder.is_dir()):
        ours, theirs = many.weights(last, role), one.weights(last, role)
        assert ours.keys() == theirs.keys()
        for name, weight in theirs.items():
            assert (ours[name] - weight).abs().max() < WEIGHT_TOLERANCE, f"{role} {name}"


def advantages(run: Run, step: int) -> list[list[float]]:
    """Of every turn, token by token; they are written with four decimals."""
    turns = (turn for episode in run.episodes(step) for turn in episode.turns)
    return [turn.advantages * (len(turn.response_ids) if len(turn.advantages) == 1 else 1) for turn in turns]


def is_chance(name: str, row: dict[str, float]) -> bool:
    """An angle between parts of a bucket's gradient of which one is nothing: .../bucket_2/cosine/task_entropy"""
    bucket, found, parts = name.rpartition("/cosine/")
    whole = bucket.rpartition("/")[0] + "/all"
    return bool(found) and any(row[f"{bucket}/{p}"] <= VANISHED * row[f"{whole}/{p}"] for p in parts.split("_"))


def is_of_nothing(name: str, row: dict[str, float]) -> bool:
    """The noise of a gradient that is zero but for rounding; one that is exactly zero has none: .../all/norm_low/kl"""
    bucket, found, part = re.sub("/norm_[a-z_]+/", "/norm_/", name).rpartition("/norm_/")
    return bool(found) and row[f"{bucket}/{part}"] <= VANISHED * row[f"{bucket}/task"]


def replies(run: Run, step: int) -> list[list[list[int]]]:
    return [[turn.response_ids for turn in episode.turns] for episode in run.episodes(step)]


def rank_processes(of: int) -> list[int]:
    return sorted(pid for pid, name in processes(of).items() if name.startswith("ray::RankProcess"))


def once(is_time: Callable[[], bool], act: Callable[[], None]) -> None:
    """Do something, in a thread, as soon as its time has come."""

    def watch() -> None:
        while not is_time():
            time.sleep(0.01)
        act()

    threading.Thread(target=watch, daemon=True).start()


def wait_until(is_time: Callable[[], bool], *, timeout: float) -> float:
    """Seconds until something is true."""
    started = time.monotonic()
    while not is_time():
        assert time.monotonic() - started < timeout, "it never came"
        time.sleep(0.05)
    return time.monotonic() - started
