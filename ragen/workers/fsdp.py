"""One of several processes that train together: models in parts (PyTorch FSDP2), a whole policy to play with.

Each rank holds a part of every weight of actor, critic and reference, and of the optimizers' moments, in float32, on
its device or in the memory of the CPU. A pass gathers one layer at a time, in bfloat16 on a GPU. Playing, and scoring
what was played, need no gradients: for them each rank has a whole policy that takes over the trained weights before
its first use after an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.engine.base import SamplingParams
from ragen.llm_agent.build import Agent
from ragen.llm_agent.es_manager import EsManager
from ragen.models.finite import save_tensors
from ragen.types import Episode, Metrics
from ragen.workers.actor import Actor, score_logprobs
from ragen.workers.batch import Batch
from ragen.workers.critic import Critic
from ragen.workers.cross_scoring import cross_logprobs
from ragen.workers.learner import OPTIMIZER_FILE, save_model
from ragen.workers.local import LocalWorkers
from ragen.workers.optimizer import Optimizer
from ragen.workers.packed import by_beginning, shared_with_previous
from ragen.workers.reference import Reference
from ragen.workers.team import Cut, gathered

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """This process among those that train together."""

    number: int
    world_size: int
    mesh: DeviceMesh
    dtype: torch.dtype
    """Of gathered and of saved weights: bfloat16 on a GPU, float32 on a CPU, as in one process."""
    is_balanced: bool
    """Ranks get similar numbers of tokens, not only of samples."""
    beat: Callable[[], None]
    """Called after each piece of work, for whoever watches."""

    @property
    def device(self) -> str:
        return self.mesh.device_type


def deal(sequences: Sequence[Sequence[int]], num_ranks: int, *, is_balanced: bool) -> list[list[int]]:
    """Indices of the samples of each rank; every sample is dealt once, some ranks may get none.

    All samples stand in a row, common beginnings together, which is cut into stretches of equal work; a sample goes
    where its middle is. A beginning that it shares with the one before it costs nothing, so work is what is left.

    [5, 6], [1], [5, 7, 8], two ranks -> [[1, 0], [2]]: 3 and 3 tokens
    """
    order = by_beginning(sequences)
    sizes = [1] * len(order)
    if is_balanced:
        shared = shared_with_previous(sequences, order)
        sizes = [max(1, len(sequences[i]) - count) for i, count in zip(order, shared, strict=True)]
    parts: list[list[int]] = [[] for _ in range(num_ranks)]
    for index, size, end in zip(order, sizes, accumulate(sizes), strict=True):
        parts[int(num_ranks * (end - size / 2) / sum(sizes))].append(index)
    return parts


class Root(nn.Module):
    """The outermost module of a model in parts. What is computed in its forward pass may use every layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], T]) -> T:
        return compute()


class ShardTeam:
    """Ranks share the samples of each mini batch; `root` is None for a model that each of them holds whole."""

    def __init__(self, rank: Rank, root: Root | None = None) -> None:
        self.rank, self.root = rank, root

    def device_of(self, model: Any) -> torch.device:
        return torch.device(self.rank.device)

    def passes(self, batch: Batch, cut: Cut) -> Iterator[tuple[list[int], Batch]]:
        rank, lengths = self.rank, batch.lengths
        parts = deal(batch.ids, rank.world_size, is_balanced=rank.is_balanced)
        cuts = [cut([batch.ids[i] for i in part]) if part else [] for part in parts]
        own = [[parts[rank.number][i] for i in chosen] for chosen in cuts[rank.number]]
        for chosen in own:
            yield chosen, batch.select(chosen)
            rank.beat()
        for _ in range(len(own), max(map(len, cuts))):
            yield [], _weightless(batch.select([lengths.index(min(lengths))]))
            rank.beat()

    def run(self, compute: Callable[[], T]) -> T:
        return compute() if self.root is None else self.root(compute)

    def sum(self, numbers: Mapping[str, float]) -> dict[str, float]:
        totals = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(totals)
        return dict(zip(numbers, totals.tolist(), strict=True))

    def sum_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        for tensor in tensors:
            dist.all_reduce(tensor)
        return list(tensors)


def _weightless(batch: Batch) -> Batch:
    """The same samples without any weight in losses and metrics."""
    if batch.weights is None or batch.mean_weights is None:
        return batch
    return replace(batch, weights=batch.weights * 0, mean_weights=batch.mean_weights * 0)


def shard(model: Any, rank: Rank, *, is_offloaded: bool = False) -> Root:
    """Keep this rank's part of every weight, layer by layer; trained weights in float32.

    Gradients are summed over the ranks, not averaged: the weights in the loss belong to the whole mini batch.
    Offloaded parts are in the CPU's memory, as are their gradients and moments; AdamW steps there.
    """
    offload = CPUOffloadPolicy(pin_memory=rank.device == "cuda") if is_offloaded else OffloadPolicy()
    policy = MixedPrecisionPolicy(
        param_dtype=rank.dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    layers = max((m for m in model.modules() if isinstance(m, nn.ModuleList)), key=len)
    root = Root(model)
    for module in (*layers, root):
        for weight in module.parameters():
            if weight.requires_grad and not isinstance(weight, DTensor):
                weight.data = weight.data.float()
        part = fully_shard(module, mesh=rank.mesh, mp_policy=policy, offload_policy=offload)
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        # Gathered weights learn here whether they are trained; later an adapter may be switched off just then.
        part.unshard()
        part.reshard()
    return root


class Whole:
    """A model in one piece that follows the weights of the same model in parts."""

    def __init__(self, model: Any | None, sharded: Any, rank: Rank) -> None:
        """`model` is None on ranks that only help to gather. Call this before the first pass: see `weights`."""
        self.model, self.rank = model, rank
        self.weights: dict[str, Any] = dict(sharded.named_parameters())
        """The parts. A pass may leave gathered weights in their place in the module."""
        self.is_stale = False

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the trained weights; all ranks must call this."""
        if not self.is_stale:
            return
        copies = dict(self.model.named_parameters()) if self.model is not None else {}
        for name, weight in self.weights.items():
            if weight.requires_grad:
                full = gathered(weight.to(self.rank.dtype).to(self.rank.device))
                if name in copies:
                    copies[name].copy_(full)
        self.is_stale = False


class RankWorkers(LocalWorkers):
    """The workers of one rank. All ranks are called with the same batches at the same time."""

    def __init__(
        self,
        config: Config,
        agent: Agent,
        *,
        rank: Rank,
        actor: Actor,
        critic: Critic | None,
        reference: Reference | None,
        tokenizer: Any,
        wholes: Mapping[str, Whole],
    ) -> None:
        """`wholes`: role -> the model in one piece; the actor's is what the agent plays with."""
        super().__init__(config, agent, actor=actor, critic=critic, reference=reference, tokenizer=tokenizer)
        self.rank, self.wholes = rank, wholes
        self._environments: dict[tuple[tuple[int, str], ...], EsManager] = {}

    def play(
        self,
        groups: Sequence[tuple[int, str]],
        group_size: int,
        *,
        base_seed: int,
        noise_seed: int,
        params: SamplingParams,
    ) -> list[Episode]:
        """Play some groups of a rollout, given by number and tag. Levels and noise follow from the number alone."""
        self.policy()
        if not groups:
            return []
        if self.agent.follow is not None:
            self.agent.follow()
            return []
        key = (*groups, (group_size, "episodes each"))
        if key not in self._environments:
            self._environments[key] = part_of_environments(self.config, groups, group_size)
        episodes = self.agent.proxy.rollout(
            self._environments[key],
            base_seed=base_seed,
            noise_seed=noise_seed,
            params=params,
            on_episode=lambda _: self.rank.beat(),
        )
        self.agent.engine.sync()
        return episodes

    def policy(self) -> Any:
        """The whole policy, with the newest weights; all ranks must call this."""
        whole = self.wholes["actor"]
        whole.refresh()
        return whole.model

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        max_samples = self.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
        team = ShardTeam(self.rank)
        return score_logprobs(self.policy(), batch, temperature=self.temperature, max_samples=max_samples, team=team)

    def cross_logprobs(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """The columns of this rank: every world_size-th prompt."""
        own = prompts[self.rank.number :: self.rank.world_size]
        size = self.config.collapse_detection.micro_batch_size
        return cross_logprobs(self.policy(), own, continuations, micro_batch_size=size)

    def update_actor(self, batch: Batch, *, step: int) -> Metrics:
        self.wholes["actor"].is_stale = True
        return super().update_actor(batch, step=step)

    def update_critic(self, batch: Batch, *, step: int) -> Metrics:
        self.wholes["critic"].is_stale = True
        return super().update_critic(batch, step=step)

    def save(self, role: str, folder: Path) -> None:
        """What one process would save; the first rank writes it."""
        learner, whole = self.learners[role], self.wholes[role]
        whole.refresh()
        if self.rank.number == 0:
            save_model(whole.model, folder, self.tokenizer)
        if "optimizer" in learner.config.checkpoint.save_contents:
            state = gathered_state(learner.optimizer, self.rank)
            if self.rank.number == 0:
                save_tensors(state, folder / OPTIMIZER_FILE)

    def load_optimizers(self, folder: Path) -> None:
        """This rank's parts of the optimizers in a checkpoint, whatever number of ranks saved it."""
        for role, learner in self.learners.items():
            load_optimizer(learner.optimizer, folder / role)
            self.wholes[role].is_stale = True

    def close(self) -> None:
        super().close()
        for environments in self._environments.values():
            environments.close()


def gathered_state(optimizer: Optimizer, rank: Rank) -> dict[str, Tensor]:
    """What one process would save of an optimizer. All ranks take part, and only the first keeps the result."""
    state = optimizer.state()
    if rank.dtype != torch.float32:  # saved weights are rounded
        state |= {f"{name}.master": weight.detach() for name, weight in optimizer.weights.items()}
    found = {}
    for key, tensor in state.items():
        full = gathered(tensor.to(rank.device))
        if rank.number == 0:
            found[key] = full.cpu()
        rank.beat()
    return found


def load_optimizer(optimizer: Optimizer, folder: Path) -> None:
    """This rank's parts of a file that `gathered_state`, or one process, made."""
    masters = optimizer.masters
    parts: dict[str, Tensor] = {}
    with safe_open(folder / OPTIMIZER_FILE, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - not a dictionary
            name, _, kind = key.rpartition(".")
            master = masters[name]
            if kind == "step" or not isinstance(master, DTensor):
                parts[key] = file.get_tensor(key)
            else:
                full = file.get_tensor(key)
                part = distribute_tensor(full, master.device_mesh, master.placements, src_data_rank=None)
                parts[key] = part.to(master.device)
    optimizer.load_state(parts)


def part_of_environments(config: Config, groups: Sequence[tuple[int, str]], group_size: int) -> EsManager:
    """The seats of some groups of a rollout; groups keep their numbers, which their levels and noise follow from."""
    runs = [(tag, len(list(found))) for tag, found in groupby(tag for _, tag in groups)]
    tags, counts = zip(*runs, strict=True)
    env_set = EnvSetConfig(
        env_groups=len(groups), group_size=group_size, env_configs=EnvConfigsConfig(tags=tags, n_groups=counts)
    )
    environments = EsManager(env_set, config.custom_envs)
    for seat in environments.seats:
        seat.group_id = groups[seat.group_id][0]
    return environments
