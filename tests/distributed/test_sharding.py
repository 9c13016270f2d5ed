"""Sharded models with bfloat16 passes, as on GPUs, between two gloo processes: against one process with masters."""

import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import CPUOffloadPolicy

from ragen.config.schema import LoraConfig
from ragen.distributed.sharding import shard
from ragen.distributed.team import Rank
from ragen.learners.actor import Actor
from ragen.learners.learner import save_optimizer
from ragen.learners.saved import OPTIMIZER_FILE
from ragen.modeling.lora import add_adapter
from ragen.modeling.team import gathered
from tests.engine.families import random_model
from tests.learners.batches import actor_config, random_batch


def bfloat16_model(rank: int):
    model = random_model("qwen2").to(torch.bfloat16)
    if rank:
        add_adapter(model, LoraConfig(rank=rank, alpha=8.0, target_modules="all-linear"), seed=1)
    return model


def actor_of(model, **changes) -> Actor:
    return Actor(model, actor_config(), temperature=1.0, total_steps=10, **changes)


LORA_RANKS = {"all weights": 0, "LoRA": 2, "offloaded": 0, "offloaded LoRA": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two processes wrote, in a folder for each case."""
    root = tmp_path_factory.mktemp("parts")
    for case in LORA_RANKS:
        (root / case).mkdir()
    mp.spawn(train_all, args=(str(root),), nprocs=2)
    return root


def train_all(number: int, root: str) -> None:
    """What each of the processes does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=number, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    rank = Rank(
        number=number, world_size=2, mesh=mesh, dtype=torch.bfloat16, is_balanced=True, on_progress=lambda: None
    )
    for case, lora_rank in LORA_RANKS.items():
        train_sharded(rank, Path(root) / case, lora_rank, is_offloaded="offloaded" in case)
    dist.destroy_process_group()
    os._exit(0)  # at the regular end torch 2.13 sometimes aborts, long after the last line of Python


def train_sharded(rank: Rank, folder: Path, lora_rank: int, *, is_offloaded: bool) -> None:
    """Update, gather and load again; the first rank writes what was found."""
    model = bfloat16_model(lora_rank)
    policy = deepcopy(model)
    team = shard(model, rank, is_offloaded=is_offloaded, copy=policy)
    assert is_offloaded is isinstance(team.root._get_fsdp_state()._fsdp_param_group.offload_policy, CPUOffloadPolicy)
    actor = actor_of(model, team=team)
    metrics = actor.update(random_batch(), step=1)
    assert team.full_model(model) is policy
    save_optimizer(actor.optimizer, folder, team)
    if rank.number == 0:
        save_file({name: w.detach().contiguous() for name, w in policy.named_parameters()}, folder / "policy")
        (folder / "metrics").write_text(json.dumps(metrics))
    dist.barrier()
    again = bfloat16_model(lora_rank)
    loaded = actor_of(again, team=shard(again, rank, is_offloaded=is_offloaded))
    loaded.load_optimizer(folder)
    for name, master in actor.optimizer.masters.items():
        assert torch.equal(gathered(loaded.optimizer.masters[name]), gathered(master)), name


@pytest.mark.parametrize("case", LORA_RANKS)
def test_rounded_passes_train_and_save_as_one_process_does(case, folder):
    folder = folder / case
    one = actor_of(bfloat16_model(LORA_RANKS[case]))
    before = {name: master.detach().clone() for name, master in one.optimizer.masters.items()}
    metrics = one.update(random_batch(), step=1)
    found = json.loads((folder / "metrics").read_text())
    for name in ("actor/grad_norm", "actor/pg_loss", "actor/kl_loss", "actor/entropy_loss"):
        assert found[name] == pytest.approx(metrics[name], rel=0.02), name  # 8 bits of mantissa
    # The masters moved the same way, and are in the file under the names that one process gives them.
    state, policy = load_file(folder / OPTIMIZER_FILE), load_file(folder / "policy")
    for name, master in one.optimizer.masters.items():
        ours, theirs = state[f"{name}.master"] - before[name], master - before[name]
        assert torch.nn.functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.9, name
        assert policy[name].dtype == torch.bfloat16
        assert torch.equal(policy[name], state[f"{name}.master"].to(torch.bfloat16))
    one.optimizer.load_state(state)
    for name, master in one.optimizer.masters.items():
        assert torch.equal(master, state[f"{name}.master"])
