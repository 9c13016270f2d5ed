"""The published scripts with several GPUs for each run; here they are CPU workers of Ray and FSDP2."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ragen.tracking.rundir import read_metrics, read_status
from tests.sweeps.sweeping import REPOSITORY, SMALL, fields_of

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)
SAVED = ("ppo_mini_batch_size=4", "--save-freq", "1")


def script(folder: Path, name: str, *arguments: str) -> str:
    """What scripts/runs/<name>.sh prints."""
    command = ["bash", str(REPOSITORY / "scripts" / "runs" / f"{name}.sh"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def num_workers(log: Path) -> int:
    """As many as really answered."""
    found = re.search(r"Workers: (\d+) on cpu, \S+ \(([\d, ]+)\)", log.read_text())
    assert found is not None, log.read_text()
    assert len(set(found[2].split(", "))) == int(found[1]), "a process each"
    return int(found[1])


@pytest.mark.slow
def test_two_runs_of_a_sweep_have_two_workers_each(tmp_path):
    values = ("--rollout_filter_value", "0.9,nofilter", "--gpus-per-exp", "2", "--gpus", "0,1,2,3", "--steps", "1")
    output = script(tmp_path, "run_top_p_sweep", *values, *SMALL, *SAVED)
    assert "the slots 0, 1, 2, 3 share the CPU" in output
    for label in ("09", "nofilter"):
        name = f"sokoban_top_p_{label}-tiny"
        log = tmp_path / f"logs/top_p_sweep_tiny/{label}/{name}.log"
        result = fields_of(log.with_suffix(".result").read_text().strip())
        assert (result["status"], result["gpu"]) == ("success", "2xCPU")
        assert num_workers(log) == 2
        run = tmp_path / f"model_saving/top_p_sweep_tiny/{label}/{name}"
        assert read_status(run)["state"] == "finished"
        assert read_metrics(run)[-1]["actor/grad_norm"] > 0
        assert (run / "global_step_1/actor/model.safetensors").exists()
    assert "groups: 0,1 (2xCPU) ; 2,3 (2xCPU)" in (tmp_path / "logs/top_p_sweep_tiny.log").read_text()


@pytest.mark.slow
def test_a_sweep_on_a_local_ray_gives_each_run_its_workers(tmp_path):
    values = ("--kl-values", "0.01", "--gpus-per-exp", "2", "--gpus", "0,1", "--steps", "1", "--ray", "local")
    output = script(tmp_path, "run_kl_sweep", *values, *SMALL, *SAVED)
    assert "every run takes 2 CPUs" in output
    log = tmp_path / "logs/kl_sweep_tiny/nofilter/001/sokoban_kl_sweep_nofilter_001-tiny.log"
    result = fields_of(log.with_suffix(".result").read_text().strip())
    assert (result["status"], result["gpu"]) == ("success", "2xCPU")
    assert num_workers(log) == 2


@pytest.mark.slow
def test_a_step_trained_by_two_workers_is_probed_by_two(tmp_path):
    small = [word for word in SMALL if "gradient_analysis_mode" not in word and "test_freq" not in word]
    small += ["trainer.gradient_analysis_env_groups=6", "trainer.gradient_analysis_group_size=4"]
    small += ["es_manager.train.env_groups=4", "actor_rollout_ref.actor.optim.lr=1e-3", "--gpus", "0,1"]
    script(tmp_path, "run_sokoban_ppo_filter_grad_analysis", "--steps", "1", "--algo", "GRPO", *small)
    folder = tmp_path / "model_saving/gradient_analysis/sokoban/GRPO/filter"
    [trained] = folder.iterdir()
    assert read_metrics(trained)[-1]["grad_norm/all/task"] > 0
    assert (trained / "global_step_1/actor/model.safetensors").exists()
    probe = "run_sokoban_ppo_filter_grad_analysis_probe_ckpt"
    script(tmp_path, probe, "--checkpoint-step", "1", "--algo", "GRPO", *small)
    [probed] = (tmp_path / "model_saving/gradient_analysis_probe/sokoban/GRPO/filter").iterdir()
    [record] = read_metrics(probed)
    assert record["step"] == 1 and record["grad_norm/all/kl"] >= 0 and record["grad_norm/all/entropy"] > 0
    for log in tmp_path.glob("logs/gradient_analysis*/*.log"):
        assert num_workers(log) == 2
