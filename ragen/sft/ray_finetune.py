"""Supervised training on several devices: each rank has a shard of the model, and of every batch."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from pathlib import Path

from ragen.config.schema import Config
from ragen.distributed.ranks import RankCalls, on_all_ranks
from ragen.distributed.sharding import shard
from ragen.distributed.team import Rank
from ragen.modeling.load import default_device
from ragen.sft.config import ROLE, SftConfig
from ragen.sft.finetune import Finetuner
from ragen.trainer.build import load_trained

MEMORY_ADVICE = (
    "To need less: smaller sft.micro_batch_size; actor_rollout_ref.model.enable_gradient_checkpointing=True; "
    "lora.rank=64; more devices; actor_rollout_ref.actor.fsdp_config.offload_policy=True."
)


class RayTuner(RankCalls):
    """The same as Finetuner, on several devices."""

    update = on_all_ranks("update")
    loss = on_all_ranks("loss")

    def save(self, folder: Path) -> None:
        self.call("save", folder.absolute())


def ray_tuner(
    config: Config, sft: SftConfig, base: Path | str, checkpoint: Path | None, *, total_steps: int
) -> RayTuner:
    # Other processes may work in another folder.
    base = Path(base).absolute() if Path(base).exists() else base
    checkpoint = checkpoint.absolute() if checkpoint else None
    builder = partial(build_rank, config, sft, base, checkpoint, total_steps)
    return RayTuner(config, builder, None, device=default_device(), memory_advice=MEMORY_ADVICE)


def build_rank(
    config: Config, sft: SftConfig, base: Path | str, checkpoint: Path | None, total_steps: int, rank: Rank
) -> Finetuner:
    """What one rank holds, in its process."""
    model = load_trained(config, base, checkpoint, ROLE)
    copy = deepcopy(model).cpu() if rank.number == 0 else None  # for checkpoints
    team = shard(model, rank, is_offloaded=config.offloaded["actor"], copy=copy)
    tuner = Finetuner(model, sft, total_steps=total_steps, team=team)
    if checkpoint:
        tuner.load_optimizer(checkpoint / ROLE)
    return tuner
