"""Joining a cluster of several machines, by the commands of docs/multi_gpu.md; here all machines are this one."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.ray_runs import assert_same_run
from tests.trainer.runs import REPOSITORY, Run, overrides, train

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RAY = str(Path(sys.executable).with_name("ray"))


class Cluster:
    """Two machines with a CPU each, and a secret of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home  # a short path: it holds sockets
        self.environment = os.environ | {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        with socket.socket() as probe:
            probe.bind(("", 0))
            self.port = probe.getsockname()[1]
        self.machines: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        subprocess.run([RAY, "get-auth-token", "--generate"], env=self.environment, check=True, capture_output=True)
        self._join("--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.home}/t")
        self._join(f"--address=127.0.0.1:{self.port}")

    def _join(self, *words: str) -> None:
        """`ray start`, which ends with its process: `ray stop` would end every Ray of this machine."""
        machine = subprocess.Popen(
            [RAY, "start", *words, "--num-cpus=1", "--num-gpus=0", "--block"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.machines.append(machine)
        assert machine.stdout is not None
        lines: list[str] = []
        for line in machine.stdout:
            lines.append(line)
            if "Ray runtime started" in line:
                return
        raise AssertionError("".join(lines))

    def train_py(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "train.py", *words, f"ray_kwargs.ray_init.address=127.0.0.1:{self.port}"]
        environment = self.environment | variables
        return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=200)

    def stop(self) -> None:
        for machine in reversed(self.machines):
            machine.terminate()
            machine.communicate(timeout=60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    found = Cluster(home)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(home)


def test_two_machines_train_as_one_process_does(cluster, tmp_path):
    done = cluster.train_py(*overrides(tmp_path / "many", "trainer.nnodes=2"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Workers: 2 on cpu" in done.stdout
    assert_same_run(train(tmp_path / "one"), Run(tmp_path / "many"))


def test_more_machines_than_the_cluster_has_are_refused(cluster, tmp_path):
    done = cluster.train_py(*overrides(tmp_path, "trainer.nnodes=3"))
    assert done.returncode == 1
    assert "trainer.nnodes=3 x trainer.n_gpus_per_node=1: the Ray cluster has 2 machines with 1, 1 CPUs" in done.stderr


def test_a_cluster_with_a_secret_is_named_to_those_who_do_not_know_it(cluster, tmp_path):
    done = cluster.train_py(*overrides(tmp_path, "trainer.nnodes=2"), RAY_AUTH_MODE="disabled")
    assert done.returncode == 1
    assert f"ray_kwargs.ray_init.address=127.0.0.1:{cluster.port}: Ray does not start" in done.stderr
    assert "RAY_AUTH_MODE=token" in done.stderr
