"""Several processes give what one process gives: real Ray, gloo and FSDP2 on the CPU."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ragen.trainer.build import build_trainer
from ragen.trainer.train import train as train_with_restarts
from ragen.workers.base import savers
from tests.trainer.ray_runs import assert_same_run, once, rank_processes, train_on
from tests.trainer.runs import BANDIT, LAKE, REPOSITORY, Run, has_logged, overrides, small_config, train

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> Iterator:
    """Three processes that serve the runs of this module."""
    from ragen.distributed.ranks import Ranks

    # Processes that a test starts itself need room beside these.
    changes = ("trainer.n_gpus_per_node=3", "ray_kwargs.ray_init.num_cpus=6")
    found = Ranks(small_config(tmp_path_factory.mktemp("ranks"), *changes), device="cpu")
    yield found
    found.close()


ANALYSIS = ("trainer.gradient_analysis_mode=True", "trainer.gradient_analysis_every=1")
CASES = {
    "parts of one's own": (
        2,
        BANDIT,
        (
            "algorithm.adv_estimator=tests.api.own:loo",
            "actor_rollout_ref.actor.policy_loss=tests.api.own:my_loss",
            "actor_rollout_ref.rollout.rollout_filter_strategy=tests.api.own:keep_all",
            "es_manager.reward_function=tests.api.own:half_reward",
            "trainer.metric_function=tests.api.own:lengths",
        ),
    ),
    "PPO with filter, KL and gradient analysis": (
        3,
        LAKE,
        (
            "actor_rollout_ref.rollout.rollout_filter_strategy=top_k",
            "actor_rollout_ref.rollout.rollout_filter_value=0.67",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.actor.kl_loss_coef=0.1",
            "micro_batch_size_per_gpu=1",
            "collapse_detection.compute_freq=1",
            "collapse_detection.num_samples=4",
            *ANALYSIS,
        ),
    ),
    "GRPO with fewer samples than ranks": (
        3,
        BANDIT,
        (
            "algorithm.adv_estimator=grpo",
            "ppo_mini_batch_size=7",  # 8 samples: the second mini batch has one
            "es_manager.train.env_groups=4",
            "es_manager.train.group_size=2",  # buckets of one group have two
            *ANALYSIS,
        ),
    ),
    "GRPO with exact KL, recomputed activations, packed micro batches, levels by pass rate and refills": (
        2,
        BANDIT,
        (
            "es_manager.train.levels=pass_rate",
            "es_manager.train.level_pool.size=4",
            "es_manager.train.refill=1",
            "actor_rollout_ref.rollout.rollout_filter_include_zero=False",
            "algorithm.adv_estimator=grpo",
            "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.actor.kl_loss_type=full",
            "actor_rollout_ref.actor.kl_loss_coef=0.1",
            "actor_rollout_ref.model.enable_gradient_checkpointing=True",
            "actor_rollout_ref.actor.use_dynamic_bsz=True",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1024",
            "trainer.balance_batch=False",
        ),
    ),
    "PPO with LoRA": (
        2,
        BANDIT,
        (
            "lora.rank=4",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.actor.kl_loss_coef=0.1",
            *ANALYSIS,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ranks_train_as_one_process_does(case, ranks, tmp_path):
    num_ranks, env, changes = CASES[case]
    one = train(tmp_path / "one", *changes, env=env)
    many = train_on(ranks, num_ranks, tmp_path / "many", *changes, env=env)
    assert_same_run(one, many)
    assert many.outcomes[2]["actor/grad_norm"] > 0


OFFLOAD = "actor_rollout_ref.actor.fsdp_config.offload_policy=True"


def test_parts_in_the_memory_of_the_cpu_train_the_same(ranks, tmp_path):
    """One rank, too: a GPU that is too small for moments trains with them elsewhere."""
    changes = (
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.1",
        "actor_rollout_ref.actor.grad_clip=0.1",
        *ANALYSIS,
    )
    one = train(tmp_path / "one", *changes)
    assert one.outcomes[2]["actor/grad_norm"] > 0.1, "clipped"
    for num_ranks in (1, 2):
        assert_same_run(one, train_on(ranks, num_ranks, tmp_path / f"{num_ranks}", OFFLOAD, *changes))


@pytest.mark.parametrize("changes", [(), ("lora.rank=4",)], ids=["all weights", "LoRA"])
def test_a_checkpoint_does_not_know_the_number_of_ranks(changes, ranks, tmp_path):
    saved = train_on(ranks, 2, tmp_path / "2", "trainer.test_freq=0", *changes)
    files = load_tensors(saved.path / "global_step_2")
    assert any(name.endswith("exp_avg_sq") for name in files["actor/optimizer.safetensors"])
    runs = []
    for num_ranks in (1, 3):
        root = tmp_path / f"2 to {num_ranks}"
        shutil.copytree(saved.path, root)
        config = small_config(
            root,
            f"trainer.n_gpus_per_node={num_ranks}",
            "trainer.total_training_steps=3",
            "trainer.save_freq=1",
            "trainer.test_freq=0",
            *changes,
        )
        trainer = build_trainer(config, ranks=ranks if num_ranks > 1 else None)
        assert trainer is not None
        for role, save in savers(trainer.workers).items():
            folder = tmp_path / f"again on {num_ranks}" / role
            folder.mkdir(parents=True)
            save(folder)
        assert_equal_tensors(load_tensors(tmp_path / f"again on {num_ranks}"), files)
        trainer.fit()
        runs.append(Run(root))
    assert_same_run(*runs)


def load_tensors(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {str(file.relative_to(folder)): load_file(file) for file in sorted(folder.rglob("*.safetensors"))}


def assert_equal_tensors(ours: dict[str, dict[str, torch.Tensor]], theirs: dict[str, dict[str, torch.Tensor]]) -> None:
    """The same files with the same tensors, bit for bit."""
    assert ours.keys() == theirs.keys()
    for file, tensors in theirs.items():
        assert ours[file].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(ours[file][name], tensor), f"{file} {name}"


def test_the_command_line_trains_on_two_workers(tmp_path):
    changes = ("trainer.n_gpus_per_node=2", "trainer.total_training_steps=1", "trainer.logger=[console]")
    command = [sys.executable, "train.py", "--config-name", "_2_sokoban", *overrides(tmp_path, *changes, env=())]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run(tmp_path)
    assert run.status["state"] == "finished" and run.checkpoints == ["global_step_1"]
    assert run.outcomes[1]["actor/grad_norm"] > 0


def test_a_run_that_loses_a_worker_resumes_from_its_checkpoint(ranks, tmp_path, capfd):
    """The worker is killed in step 2; the checkpoint is that of step 1."""
    changes = ("trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.test_freq=0")
    one = train(tmp_path / "one", *changes)
    root, others = tmp_path / "many", set(rank_processes(os.getpid()))
    killed: list[int] = []

    def kill_one() -> None:
        killed.append(max(set(rank_processes(os.getpid())) - others))
        os.kill(killed[0], signal.SIGKILL)

    once(lambda: has_logged(root, 1), kill_one)
    train_with_restarts(small_config(root, "trainer.n_gpus_per_node=2", "trainer.max_restarts=1", *changes))
    said = capfd.readouterr().err
    assert re.search(rf"error: Worker \d of 2 \(process {killed[0]} on .+\) died during \w+", said), said
    assert "Restarting (0 restarts left)." in said
    assert_same_run(one, Run(root))
    assert set(rank_processes(os.getpid())) == others
