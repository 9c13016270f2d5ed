"""Supervised training on several devices: each rank has a shard of the model, and of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ragen.config.schema import Config
from ragen.distributed.ranks import RankCalls, Ranks
from ragen.distributed.sharding import Whole, gathered_state, load_optimizer, shard
from ragen.distributed.team import Rank, ShardTeam
from ragen.learners.learner import OPTIMIZER_FILE
from ragen.modeling.finite import save_tensors
from ragen.modeling.load import default_device
from ragen.sft.config import SftConfig
from ragen.sft.finetune import Finetuner, save_weights
from ragen.sft.model import ROLE, build_model
from ragen.types import Metrics, Sample

MEMORY_ADVICE = (
    "To need less: smaller sft.micro_batch_size; actor_rollout_ref.model.enable_gradient_checkpointing=True; "
    "lora.rank=64; more devices; actor_rollout_ref.actor.fsdp_config.offload_policy=True."
)


class RankTuner(Finetuner):
    """The model of one rank. All ranks are called with the same samples at the same time."""

    def __init__(self, model: Any, sft: SftConfig, *, total_steps: int, rank: Rank, is_offloaded: bool) -> None:
        copy = deepcopy(model).cpu() if rank.number == 0 else None  # for checkpoints
        team = ShardTeam(rank, shard(model, rank, is_offloaded=is_offloaded))
        self.rank, self.whole = rank, Whole(copy, model, rank)
        super().__init__(model, sft, total_steps=total_steps, team=team)

    def update(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        self.whole.is_stale = True
        return super().update(samples, step=step)

    def save(self, folder: Path) -> None:
        """What one process would save; the first rank writes it."""
        self.whole.refresh()
        state = gathered_state(self.optimizer, self.rank)
        if self.rank.number == 0:
            save_weights(self.whole.model, folder)
            save_tensors(state, folder / OPTIMIZER_FILE)

    def load_optimizer(self, folder: Path) -> None:
        load_optimizer(self.optimizer, folder)
        self.whole.is_stale = True

    def synchronize(self) -> None:
        if self.rank.device == "cuda":
            torch.cuda.synchronize()


class RayTuner(RankCalls):
    """The same as Finetuner, on several devices."""

    def update(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        return self.ask("update", list(samples), step=step)

    def loss(self, samples: Sequence[Sample]) -> float:
        return self.ask("loss", list(samples))

    def save(self, folder: Path) -> None:
        self.ask("save", folder.absolute())


def ray_tuner(
    config: Config, sft: SftConfig, base: Path | str, checkpoint: Path | None, *, total_steps: int
) -> RayTuner:
    # Other processes may work in another folder.
    base = Path(base).absolute() if Path(base).exists() else base
    checkpoint = checkpoint.absolute() if checkpoint else None
    builder = partial(build_rank, config, sft, base, checkpoint, total_steps)
    ranks = Ranks(config, device=default_device())
    return RayTuner(config, builder, ranks, memory_advice=MEMORY_ADVICE, owns_ranks=True)


def build_rank(
    config: Config, sft: SftConfig, base: Path | str, checkpoint: Path | None, total_steps: int, rank: Rank
) -> RankTuner:
    """What one rank holds, in its process."""
    model = build_model(config, base, checkpoint)
    is_offloaded = config.offloaded["actor"]
    tuner = RankTuner(model, sft, total_steps=total_steps, rank=rank, is_offloaded=is_offloaded)
    if checkpoint:
        tuner.load_optimizer(checkpoint / ROLE)
    return tuner
