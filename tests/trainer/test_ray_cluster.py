"""Joining a cluster of several machines, which here are several raylets on one."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.trainer.ray_runs import assert_same_run
from tests.trainer.runs import REPOSITORY, Run, overrides, train

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def train_py(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "train.py", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=200)


def test_two_machines_train_as_one_process_does(address, tmp_path):
    nodes = ("trainer.nnodes=2", f"ray_kwargs.ray_init.address={address}")
    done = train_py(*overrides(tmp_path / "many", *nodes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_run(train(tmp_path / "one"), Run(tmp_path / "many"))


def test_more_machines_than_the_cluster_has_are_refused(address, tmp_path):
    done = train_py(*overrides(tmp_path, "trainer.nnodes=3", f"ray_kwargs.ray_init.address={address}"))
    assert done.returncode == 1
    assert "trainer.nnodes=3 x trainer.n_gpus_per_node=1: the Ray cluster has 2 machines with 1, 1 CPUs" in done.stderr
