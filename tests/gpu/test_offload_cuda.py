"""Shards of a model in the CPU's memory: a GPU trains with them as with shards of its own."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ragen.distributed.sharding import shard
from ragen.distributed.team import Rank
from ragen.learners.gradients import component_gradients
from tests.distributed.test_sharding import actor_of, bfloat16_model
from tests.learners.batches import random_batch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def train_both(_: int, root: str, device: str, lora_rank: int) -> None:
    """In a process of its own: two steps without and with offloaded shards, and an analysis of the gradient."""
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{root}/store", rank=0, world_size=1)
    mesh = dist.device_mesh.init_device_mesh(device, (1,))
    rank = Rank(number=0, world_size=1, mesh=mesh, dtype=torch.bfloat16, is_balanced=True, on_progress=lambda: None)
    found = []
    for is_offloaded in (False, True):
        model = bfloat16_model(lora_rank).to(device)
        policy = deepcopy(model)
        team = shard(model, rank, is_offloaded=is_offloaded, copy=policy)
        actor = actor_of(model, team=team)
        metrics = [actor.update(random_batch(), step=step) for step in (1, 2)]
        gradient = component_gradients(actor, random_batch(), {"bucket_1": [[0, 1, 2], [3, 4, 5, 6]]})["task"]["all"]
        assert team.full_model(model) is policy
        where = {tensor.device.type for tensor in (*actor.optimizer.masters.values(), *moments(actor))}
        assert where == ({"cpu"} if is_offloaded else {device})
        assert {weight.device.type for weight in policy.parameters()} == {device}
        found.append(
            (
                metrics,
                gradient.norm,
                team.full_tensors(actor.optimizer.state(with_masters=True)),
                dict(policy.named_parameters()),
            )
        )
    (metrics, norm, state, weights), (others, other_norm, other_state, other_weights) = found
    for ours, theirs in zip(metrics, others, strict=True):
        for name, value in ours.items():
            assert theirs[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert other_norm == pytest.approx(norm, rel=1e-3)
    for name, tensor in state.items():
        assert torch.allclose(other_state[name], tensor, rtol=1e-2, atol=1e-5), name
    for name, weight in weights.items():
        assert torch.allclose(other_weights[name], weight, rtol=1e-2, atol=1e-5), name
    dist.destroy_process_group()


def moments(actor) -> list[torch.Tensor]:
    return [
        moment for state in actor.optimizer.adam.state.values() for moment in (state["exp_avg"], state["exp_avg_sq"])
    ]


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_offloaded_parts_train_the_same(lora_rank: int, tmp_path: Path):
    mp.spawn(train_both, args=(str(tmp_path), "cuda", lora_rank), nprocs=1)
