"""A supervised run in small."""

from ragen.models.resolve import resolve_model
from ragen.sft.config import load_sft
from ragen.sft.data import load_data
from ragen.types import Sample

SMALL = (
    "model_path=tiny",
    "es_manager.train.env_configs.tags=[FrozenLake]",
    "es_manager.val.env_groups=6",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.rollout.response_length=64",
    "agent_proxy.max_turn=3",
    "trainer.logger=[]",
    "lora.alpha=4",
    "sft.train_size=24",
    "sft.val_size=8",
    "sft.epochs=2",
    "sft.batch_size=16",
    "sft.optim.lr=3e-4",
)


def configured(*changes: str):
    return load_sft("base", [*SMALL, *changes])


def samples(tokenizer, *changes: str) -> tuple[list[Sample], list[Sample]]:
    config, sft = configured(*changes)
    return load_data(config, sft, model=resolve_model("tiny/frozen_lake"), tokenizer=tokenizer)
