"""What a run says and leaves behind when one of its processes is killed, hangs or runs out of memory."""

import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ragen.errors import NotFinite, WorkerError
from ragen.trainer.build import build_trainer
from tests.processes import processes
from tests.trainer.ray_runs import rank_processes, wait_until
from tests.trainer.runs import Run, finish, has_logged, small_config, start_process

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Ray, once for all runs; each run has processes of its own."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def free_cluster() -> Iterator[None]:
    """Ranks of a test that ran out of time would hold both CPUs, and every test after it would wait for them."""
    yield
    for pid in rank_processes(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def at(phase: str, fault: Callable[[], None], note: Path) -> Callable[[Any], None]:
    """To be called in a worker: the fault strikes after its first piece of work in the phase, or else at its begin."""

    def arm(process: Any) -> None:
        before, current = process._note, ""

        def strike(new_phase: str | None) -> None:
            nonlocal current
            current = new_phase or current
            before(new_phase)
            if current == phase and (new_phase is None or phase in ("save", "cross_logprobs")):
                note.touch()
                process._note = before
                fault()

        process._note = strike

    return arm


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def exhaust_memory() -> None:
    """The process gets no more memory, and needs some."""
    import torch

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, used))
    torch.ones(2**28)


def fail_in(tmp_path: Path, phase: str, fault: Callable[[], None], *changes: str) -> str:
    """What a run says whose worker 1 meets a fault in a phase."""
    config = small_config(
        tmp_path / "run",
        "trainer.n_gpus_per_node=2",
        "trainer.save_freq=1",
        "micro_batch_size_per_gpu=1",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "trainer.gradient_analysis_mode=True",
        "trainer.gradient_analysis_every=1",
        "collapse_detection.compute_freq=1",
        *changes,
    )
    trainer = build_trainer(config)
    assert trainer is not None
    note = tmp_path / "struck"
    ray.get(trainer.workers.ranks.actors[1].__ray_call__.remote(at(phase, fault, note)))  # type: ignore[attr-defined]
    with pytest.raises(WorkerError) as caught:
        trainer.fit()
    assert note.exists(), "the fault struck"
    assert Run(tmp_path / "run").status["state"] == "failed"
    wait_until(lambda: not rank_processes(os.getpid()), timeout=60)
    return str(caught.value)


PHASES = (
    "play",
    "logprobs",
    "ref_logprobs",
    "values",
    "cross_logprobs",
    "update_critic",
    "gradient_components",
    "update_actor",
    "save",
)


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_in_any_phase_is_named(phase, tmp_path):
    said = fail_in(tmp_path, phase, die)
    assert said.startswith("Worker 1 of 2 (process ") and f"died during {phase}" in said
    assert "resumes from the newest checkpoint" in said
    # A checkpoint is whole or not there.
    assert not list((tmp_path / "run").glob("global_step_*"))


def test_a_worker_without_memory_is_named_with_advice(tmp_path):
    said = fail_in(tmp_path, "update_actor", exhaust_memory)
    assert said.startswith("Worker 1 of 2 (process ") and "ran out of memory during update_actor" in said
    assert "smaller actor_rollout_ref.rollout.max_num_seqs" in said, "the micro batches cannot be smaller"


@pytest.mark.parametrize("phase", ["play", "update_actor"])
def test_a_worker_that_hangs_is_reported_and_then_ended(phase, tmp_path, capfd):
    said = fail_in(tmp_path, phase, stop, "trainer.watchdog_minutes=0.05", "trainer.hang_timeout_minutes=0.15")
    assert f"during {phase} (trainer.hang_timeout_minutes)" in said and "worker 1: " in said
    assert f"s during {phase}:\n  worker 0: " in capfd.readouterr().err  # the watchdog, before


def test_a_killed_driver_leaves_no_worker_and_the_run_goes_on(tmp_path):
    changes = ("trainer.n_gpus_per_node=2", "trainer.save_freq=1", "trainer.test_freq=0")
    process = start_process(tmp_path, *changes, "trainer.total_training_steps=50")
    wait_until(lambda: has_logged(tmp_path, 1), timeout=120)
    children = processes(process.pid)
    assert sum(name.startswith("ray::RankProcess") for name in children.values()) == 2
    process.kill()
    process.communicate()

    # What holds memory and devices is gone at once; agents of Ray that watch over it give up after a minute.
    workers = [
        Path(f"/proc/{pid}")
        for pid, name in children.items()
        if any(part in name for part in ("ray::RankProcess", "raylet/raylet", "gcs_server"))
    ]
    wait_until(lambda: not any(folder.exists() for folder in workers), timeout=60)
    step = max(Run(tmp_path).metrics)
    code, output = finish(start_process(tmp_path, *changes, f"trainer.total_training_steps={step + 2}"))
    assert code == 0, output
    assert list(Run(tmp_path).metrics)[-1] == step + 2


def test_a_signal_on_several_devices_saves_the_newest_whole_step(tmp_path):
    changes = ("trainer.n_gpus_per_node=2", "trainer.save_freq=1000", "trainer.test_freq=0")
    process = start_process(tmp_path, *changes, "trainer.total_training_steps=1000")
    wait_until(lambda: has_logged(tmp_path, 1), timeout=120)
    children = processes(process.pid)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 128 + signal.SIGTERM, output
    run = Run(tmp_path)
    [name] = run.checkpoints
    step = int(name.rpartition("_")[2])
    assert run.status["state"] == "interrupted" and run.status["reason"].endswith(f"SIGTERM: step {step} is saved")
    ranks = [Path(f"/proc/{pid}") for pid, found in children.items() if found.startswith("ray::RankProcess")]
    wait_until(lambda: not any(folder.exists() for folder in ranks), timeout=15)
    code, output = finish(start_process(tmp_path, *changes, f"trainer.total_training_steps={step + 1}"))
    assert code == 0 and f"Resuming from step {step} of {tmp_path}." in output


def test_weights_that_are_no_numbers_are_named_from_every_rank(tmp_path):
    trainer = build_trainer(small_config(tmp_path, "trainer.n_gpus_per_node=2", "trainer.save_freq=1"))
    assert trainer is not None

    def spoil(process: Any) -> None:
        optimizer = process._workers.actor.optimizer
        optimizer.learning_rate = lambda step: float("inf") if step > 1 else 1e-3

    for actor in trainer.workers.ranks.actors:  # type: ignore[attr-defined]
        ray.get(actor.__ray_call__.remote(spoil))
    with pytest.raises(NotFinite, match=r"of the actor are not finite after the update of step 2.*global_step_1"):
        trainer.fit()
    assert Run(tmp_path).status["state"] == "failed" and Run(tmp_path).checkpoints == ["global_step_1"]


def test_a_cluster_that_dies_ends_the_run_with_a_status(tmp_path):
    changes = ("trainer.n_gpus_per_node=2", "trainer.save_freq=-1", "trainer.test_freq=0")
    process = start_process(tmp_path, *changes, "trainer.total_training_steps=100000")
    wait_until(lambda: has_logged(tmp_path, 1), timeout=120)
    (head,) = (pid for pid, name in processes(process.pid).items() if "gcs_server" in name.split()[0])
    os.kill(head, signal.SIGKILL)
    code, output = finish(process)
    status = Run(tmp_path).status
    assert code == 1, output
    assert status["state"] == "failed" and status["reason"].startswith("WorkerError: The Ray cluster is gone")
    assert "Failed at step" in output


def test_a_node_that_dies_takes_the_process_along_and_the_status_says_so(tmp_path):
    changes = ("trainer.n_gpus_per_node=2", "trainer.save_freq=-1", "trainer.test_freq=0")
    process = start_process(tmp_path, *changes, "trainer.total_training_steps=100000")
    wait_until(lambda: has_logged(tmp_path, 1), timeout=120)
    (node,) = (pid for pid, name in processes(process.pid).items() if name.split()[0].endswith("raylet/raylet"))
    os.kill(node, signal.SIGKILL)
    code, output = finish(process)
    assert code != 0, output
    wait_until(lambda: Run(tmp_path).status["state"] == "failed", timeout=30)
    assert "Failed at step" in output


def test_a_head_is_gone_only_after_a_while():
    from ragen.distributed.ranks import HEAD_GONE_S, Head  # needs Ray

    with socket.create_server(("127.0.0.1", 0)) as server:
        head = Head(f"127.0.0.1:{server.getsockname()[1]}")
        start = time.monotonic()
        assert not head.is_gone(start + 5)
    assert not head.is_gone(start + 5 + HEAD_GONE_S)
    assert head.is_gone(start + 7 + HEAD_GONE_S)
    with socket.create_server(("127.0.0.1", head._port)):
        assert not head.is_gone(start + 9 + HEAD_GONE_S)
