"""Supervised training on several processes gives what one process gives: real Ray, gloo and FSDP2 on the CPU."""

import os
import re
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ragen.sft import command
from ragen.tracking.rundir import read_metrics
from tests.sft.supervised import configured
from tests.trainer.ray_runs import NORM_TOLERANCE, once, rank_processes

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)

LR = 1e-3
CHANGES = ("sft.epochs=2", f"sft.optim.lr={LR}", "sft.micro_batch_size=3", "sft.validate_merged=False")


def tune(folder: Path, *changes: str) -> dict[int, dict[str, float]]:
    """Step -> what was measured of it."""
    merged = command.run_sft(*configured(f"sft.output_dir={folder}", *CHANGES, *changes))
    assert merged == folder / "merged_model"
    return {record["step"]: record for record in read_metrics(folder)}


def assert_same(ours: Path, theirs: Path, *, num_steps: int) -> None:
    """The same losses and norms, and weights within a fifth of a step of AdamW."""
    one, many = ({r["step"]: r for r in read_metrics(folder)} for folder in (ours, theirs))
    assert one.keys() == many.keys() == set(range(num_steps + 1))
    for step, record in one.items():
        assert many[step].keys() == record.keys()
        for name, value in record.items():
            if name != "sft/tokens_per_second":
                assert many[step][name] == pytest.approx(value, **NORM_TOLERANCE, nan_ok=False), f"{name} at {step}"
    weights = load_file(ours / "merged_model" / "model.safetensors")
    for name, weight in load_file(theirs / "merged_model" / "model.safetensors").items():
        assert (weights[name] - weight).abs().max() < 0.2 * LR, name


def test_two_workers_train_and_resume_as_one_process_does(tmp_path, capfd):
    """A worker is killed after the first epoch; what resumes from there equals what was never interrupted."""
    one, many = tmp_path / "one", tmp_path / "many"
    num_steps = max(tune(one))
    others = set(rank_processes(os.getpid()))

    def kill_one() -> None:
        os.kill(max(set(rank_processes(os.getpid())) - others), signal.SIGKILL)

    once(lambda: (many / "weights" / "latest_checkpointed_iteration.txt").exists(), kill_one)
    tune(many, "trainer.n_gpus_per_node=2", "system.CUDA_VISIBLE_DEVICES=''", "trainer.max_restarts=1")
    said = capfd.readouterr()
    assert len(re.findall(r"Workers: 2 on cpu, \S+ \(\d+, \d+\)", said.out)) == 2, "before and after"
    assert re.search(r"Worker \d of 2 .* died during", said.err) and "Restarting (0 restarts left)" in said.err
    assert_same(one, many, num_steps=num_steps)
    assert set(rank_processes(os.getpid())) == others


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_adapters_and_offloaded_parts_train_the_same(num_ranks, tmp_path):
    lora = ("lora.rank=4",)
    num_steps = max(tune(tmp_path / "one", *lora))
    offload = "actor_rollout_ref.actor.fsdp_config.offload_policy=True"
    devices = (f"trainer.n_gpus_per_node={num_ranks}", "system.CUDA_VISIBLE_DEVICES=''")
    tune(tmp_path / "many", *lora, offload, *devices)
    assert_same(tmp_path / "one", tmp_path / "many", num_steps=num_steps)
