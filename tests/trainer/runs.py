"""Very small runs on the embedded models: a second or two each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from ragen.config import Config, load_config
from ragen.errors import ConfigError
from ragen.tracking.episodes import read_episodes
from ragen.tracking.lock import LOCK
from ragen.tracking.names import without_times
from ragen.tracking.rundir import read_metrics, read_status
from ragen.types import Episode, Status, Turn
from tests.processes import STARTED

REPOSITORY = Path(__file__).parents[2]

SMALL = (
    "model_path=tiny",
    "system.CUDA_VISIBLE_DEVICES=''",
    "micro_batch_size_per_gpu=8",
    "ppo_mini_batch_size=8",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.rollout.response_length=48",
    "actor_rollout_ref.rollout.max_model_len=1024",
    "es_manager.train.env_groups=3",
    "es_manager.train.group_size=4",
    "es_manager.val.env_groups=4",
    "trainer.logger=[]",
    "trainer.total_training_steps=2",
    "trainer.test_freq=2",
    "trainer.save_freq=2",
    # Diagnostics take as long as such a run itself: tests/diagnostics switches them on.
    "trainer.gradient_analysis_mode=False",
    "collapse_detection.compute_freq=0",
)
LAKE = ("es_manager.train.env_configs.tags=[FrozenLake]", "agent_proxy.max_turn=2")
BANDIT = ("es_manager.train.env_configs.tags=[Bandit]", "agent_proxy.max_turn=1", "agent_proxy.max_actions_per_turn=1")


def overrides(root: Path, *changes: str, env: tuple[str, ...] = BANDIT) -> list[str]:
    return [*SMALL, *env, f"trainer.default_local_dir={root}", *changes]


def small_config(root: Path, *changes: str, env: tuple[str, ...] = BANDIT) -> Config:
    return load_config("base", overrides(root, *changes, env=env))


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    path: Path

    @property
    def metrics(self) -> dict[int, dict[str, Any]]:
        """Step -> metrics; every step has one line, and they are in order."""
        records = read_metrics(self.path)
        steps = [record["step"] for record in records]
        assert steps == sorted(set(steps)), f"steps {steps}"
        return {record["step"]: {k: v for k, v in record.items() if k != "step"} for record in records}

    @property
    def outcomes(self) -> dict[int, dict[str, Any]]:
        """The metrics without what a clock says."""
        return {step: without_times(row) for step, row in self.metrics.items()}

    @property
    def status(self) -> dict[str, Any]:
        return read_status(self.path)

    @property
    def checkpoints(self) -> list[str]:
        return sorted(folder.name for folder in self.path.glob("global_step_*"))

    def episodes(self, step: int, kind: str = "train") -> list[Episode]:
        return list(read_episodes(self.path / "episodes" / f"{kind}_step_{step}.jsonl.gz"))

    def weights(self, step: int, role: str = "actor") -> dict[str, Tensor]:
        return load_file(self.path / f"global_step_{step}" / role / "model.safetensors")

    def tensor_bytes(self, step: int) -> dict[str, bytes]:
        """Every safetensors file of a checkpoint."""
        folder = self.path / f"global_step_{step}"
        return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))}


def train(root: Path, *changes: str, env: tuple[str, ...] = BANDIT) -> Run:
    """Train in this process."""
    from ragen.trainer.build import build_trainer

    trainer = build_trainer(small_config(root, *changes, env=env))
    assert trainer is not None, "nothing to do"
    trainer.fit()
    return Run(root)


def refused(root: Path, *changes: str, env: tuple[str, ...] = LAKE) -> str:
    """Why a run does not start."""
    from ragen.trainer.build import build_trainer

    with pytest.raises(ConfigError) as error:
        build_trainer(small_config(root, *changes, env=env))
    return str(error.value)


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Time and content of every file of a run but its lock."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def start_process(root: Path, *changes: str, env: tuple[str, ...] = BANDIT, threads: int = 1) -> subprocess.Popen[str]:
    """`python train.py` in a process of its own, which ends with the test."""
    process = subprocess.Popen(
        [sys.executable, "train.py", *overrides(root, *changes, env=env)],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(process)
    return process


def finish(process: subprocess.Popen[str], *, timeout: float = 120) -> tuple[int, str]:
    """Exit code and output of a process that ends by itself."""
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def kill_when(process: subprocess.Popen[str], is_time: Callable[[], bool], *, timeout: float = 120) -> bool:
    """SIGKILL as soon as `is_time`; False if the process ended before."""
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if is_time():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return process.returncode == -signal.SIGKILL
        assert time.monotonic() < deadline, "the moment to kill never came"
        time.sleep(0.002)
    process.communicate()
    return False


def has_logged(root: Path, step: int) -> bool:
    path = root / "metrics.jsonl"
    return path.exists() and any(record["step"] >= step for record in read_metrics(path))


def episode(member: int, rewards: list[float], *, group_id: int = 0, tag: str = "Lake") -> Episode:
    """A failed episode with a turn for each reward."""
    turns = [
        Turn(
            user="go", prompt_ids=[1, 2], response_ids=[3], logprobs=[-1.0], text="x", stop_reason="stop", reward=reward
        )
        for reward in rewards
    ]
    return Episode(
        tag=tag, env_type="lake", group_id=group_id, member=member, seed=0, turns=turns, status=Status.FAILED
    )
