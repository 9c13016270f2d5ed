"""The legacy keys and what became of them: one row per key. docs/legacy.md shows the same table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from ragen.errors import ConfigError

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", list: "a list"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One legacy key."""

    kind: type
    modern: str
    """Keys of the normal configuration, comma separated; empty when there is none."""
    note: str = ""
    """How the value is used when it is not simply handed on, or why it means nothing any more."""
    is_gone: bool = False
    """Only the default is accepted."""
    is_optional: bool = False
    """May be empty."""
    is_direct: bool = False
    """The value is handed on as it is, to every modern key."""

    @property
    def keys(self) -> list[str]:
        return [key.strip() for key in self.modern.split(",") if key.strip()]

    def convert(self, key: str, value: Any) -> Any:
        """The value in the type of this row."""
        if value is None:
            if self.is_optional:
                return None
            raise ConfigError(f"{key}: the value is empty. Give {WORDS[self.kind]}.")
        try:
            if self.kind in (int, float, bool) and isinstance(value, bool) != (self.kind is bool):
                raise ValueError(value)
            return CONVERTERS.get(self.kind, self.kind)(value)
        except (ValueError, TypeError, yaml.YAMLError) as error:
            raise ConfigError(f"{key}: expected {WORDS[self.kind]}, got {value!r}. It is {self.modern} now.") from error


def to_int(value: Any) -> int:
    if float(value) != int(float(value)):
        raise ValueError(value)
    return int(float(value))


def to_list(value: Any) -> tuple[str, ...]:
    """["a"], "a" and "['a', 'b']" are lists."""
    if isinstance(value, str):
        value = yaml.safe_load(value)
    return tuple(str(entry) for entry in (value if isinstance(value, list) else [value]))


CONVERTERS = {int: to_int, list: to_list}
"""Other types read a value by themselves."""


def same(kind: type, modern: str, note: str = "") -> Row:
    """The value is handed on."""
    return Row(kind=kind, modern=modern, note=note, is_direct=True)


def used(kind: type, modern: str, note: str, *, is_optional: bool = False) -> Row:
    """The value is used as the note says, in translate.py."""
    return Row(kind=kind, modern=modern, note=note, is_optional=is_optional)


def gone(kind: type, note: str, modern: str = "") -> Row:
    """Only the default is accepted."""
    return Row(kind=kind, modern=modern, note=note, is_gone=True, is_optional=True)


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
NEVER_READ = "It never had an effect. Leave it out."
PICTURES = "Pictures of saved episodes are drawn afterwards: ragen show RUN --png DIR. Leave it out."
SAME_LEVELS = "Demonstrations are made on the levels that are trained on: set env.{0}."
VAL_NAMES = "custom_envs.TwoArmedBanditVal.env_config.{0}"

TABLE: dict[str, Row] = {
    "rl_or_sft": used(str, "", "rl is `python train.py`, sft is `ragen sft`"),
    "system.cuda_visible_devices": used(
        str, "system.CUDA_VISIBLE_DEVICES", "left at its default, it lists GPUs 0 to n_gpus - 1"
    ),
    "system.n_gpus": used(int, "trainer.n_gpus_per_node", "processes on the CPU where there are no GPUs"),
    "system.multi_processing": gone(
        str, "One GPU trains in this process, several with Ray: trainer.n_gpus_per_node.", "trainer.n_gpus_per_node"
    ),
    "system.vllm_attention_backend": gone(
        str, "The engine is actor_rollout_ref.rollout.name; it picks its own attention.", f"{ROLLOUT}.name"
    ),
    "model.base_model": same(str, "model_path"),
    "model.experiment_name": same(str, "trainer.experiment_name"),
    "model.gradient_checkpointing": same(bool, "actor_rollout_ref.model.enable_gradient_checkpointing"),
    "training.micro_batch_size": used(int, "micro_batch_size_per_gpu", "divided by n_gpus, at least 1"),
    "training.train_batch_size": same(int, "es_manager.train.env_groups", "levels per step"),
    "training.val_batch_size": used(
        int, f"{ROLLOUT}.max_num_seqs", "times n_rollout: the most validation episodes played at once"
    ),
    "training.ppo_batch_size": same(int, "ppo_mini_batch_size"),
    "training.train_data_num": used(
        int, "trainer.total_training_steps", "levels of an epoch; empty is 10000", is_optional=True
    ),
    "training.val_data_num": used(
        int, "es_manager.val.env_groups", "empty is all 500; an incomplete last batch is played, too", is_optional=True
    ),
    "training.max_start_length": used(
        int, f"{ROLLOUT}.max_model_len", "max_start_length + max_turns * (max_response_length + max_obs_length)"
    ),
    "training.max_response_length": same(int, f"{ROLLOUT}.response_length", "and part of max_model_len"),
    "training.max_obs_length": used(int, f"{ROLLOUT}.max_model_len", "see max_start_length"),
    "training.max_turns": used(
        int, "agent_proxy.max_turn, custom_envs.TAG.max_actions_per_traj", "one action per turn"
    ),
    "training.n_rollout": same(int, "es_manager.train.group_size, es_manager.val.group_size", "plays of each level"),
    "training.rollout_tp_size": same(int, f"{ROLLOUT}.tensor_model_parallel_size"),
    "training.temperature": same(float, f"{ROLLOUT}.temperature, {ROLLOUT}.val_kwargs.temperature"),
    "training.total_epochs": used(
        int,
        "trainer.total_training_steps",
        "total_epochs * (train_data_num // train_batch_size): an epoch drops its incomplete batch",
    ),
    "training.total_training_steps": used(int, "trainer.total_training_steps", "empty counts epochs", is_optional=True),
    "training.use_kl_loss": used(
        bool, f"{ACTOR}.use_kl_loss, algorithm.use_kl_in_reward", "false moves the KL from the loss into the reward"
    ),
    "training.no_think_rl": used(bool, "agent_proxy.enable_think", "true is enable_think=False"),
    "training.state_masking": used(
        bool, "enable_response_mask", "both values: exactly the sampled tokens are trained, never observations"
    ),
    "training.use_sft": gone(bool, NEVER_READ),
    "training.binary_reward": gone(bool, NEVER_READ),
    "training.mask_state": gone(bool, NEVER_READ),
    "training.length_penalty": gone(bool, NEVER_READ),
    "optimization.actor_lr": same(float, f"{ACTOR}.optim.lr"),
    "optimization.critic_lr": same(float, "critic.optim.lr"),
    "optimization.kl_coef": used(
        float,
        f"{ACTOR}.kl_loss_coef, algorithm.kl_ctrl.kl_coef",
        "of the KL in the loss or the reward, see use_kl_loss",
    ),
    "optimization.kl_loss_type": same(str, f"{ACTOR}.kl_loss_type"),
    "optimization.adv_estimator": same(str, "algorithm.adv_estimator"),
    "optimization.gpu_memory_utilization": same(float, f"{ROLLOUT}.gpu_memory_utilization"),
    "logging.mode": used(list, "trainer.logger", "and always the console"),
    "logging.log_images": used(bool, "", "either way; pictures are drawn afterwards: ragen show RUN --png DIR"),
    "logging.log_image_dir": gone(str, PICTURES),
    "logging.log_image_step_size": gone(int, PICTURES),
    "logging.log_n_image_per_batch": gone(int, PICTURES),
    "trainer.val_before_train": same(bool, "trainer.val_before_train"),
    "trainer.val_only": same(bool, "trainer.val_only"),
    "trainer.default_hdfs_dir": gone(
        str, "Checkpoints go to trainer.default_local_dir. Leave it out.", "trainer.default_local_dir"
    ),
    "trainer.nnodes": same(int, "trainer.nnodes"),
    "trainer.seeds": same(int, "trainer.seeds", "younger than these experiments: the same command with other seeds"),
    "seed.train": same(int, "seed.train", "younger than these experiments: where the training levels start"),
    "trainer.save_freq": same(int, "trainer.save_freq"),
    "trainer.test_freq": same(int, "trainer.test_freq"),
    "trainer.project_name": same(str, "trainer.project_name"),
    "env.data_dir": gone(str, "Levels are made from their seeds (seed.train, seed.val). Leave it out.", "seed.train"),
    "env.low_risk_val_name": used(
        str, VAL_NAMES.format("low_risk_name"), "empty validates on the training names", is_optional=True
    ),
    "env.high_risk_val_name": used(
        str, VAL_NAMES.format("high_risk_name"), "empty validates on the training names", is_optional=True
    ),
    "sft.env_type": gone(str, "The first word of the command is the environment."),
    "sft.output_dir": same(str, "sft.output_dir"),
    "sft.data_generation.data_dir": used(str, "sft.data_dir", "with the environment's name behind it"),
    "sft.data_generation.algo": gone(str, "The solver of the environment demonstrates: bfs."),
    "sft.data_generation.seed": same(int, "sft.seed"),
    "sft.data_generation.train_size": same(int, "sft.train_size"),
    "sft.data_generation.test_size": same(int, "sft.val_size"),
    "sft.data_generation.bfs_max_depths": same(int, "sft.max_plan"),
    "sft.data_generation.prefix": gone(str, "The model's own chat template renders the messages: message."),
    "sft.data_generation.num_processes": same(int, "sft.num_processes", "never more than there are cores"),
    "sft.training.base_model": same(str, "model_path"),
    "sft.training.experiment_name": same(str, "trainer.experiment_name"),
    "sft.training.project_name": same(str, "trainer.project_name"),
    "sft.training.logger": used(list, "trainer.logger", "and always the console"),
    "sft.training.num_gpus": used(int, "trainer.n_gpus_per_node", "left out, system.n_gpus counts"),
    "sft.training.max_length": same(int, "sft.max_length"),
    "sft.training.learning_rate": same(float, "sft.optim.lr"),
    "sft.training.train_batch_size": same(int, "sft.batch_size", "replies per optimizer step, in whole episodes"),
    "sft.training.micro_batch_size": same(
        int, "sft.micro_batch_size", "episodes per pass of one GPU, packed without padding"
    ),
    "sft.training.epochs": same(int, "sft.epochs"),
    "sft.training.lora_rank": same(int, "lora.rank"),
    "sft.training.lora_alpha": same(float, "lora.alpha"),
    "sft.training.target_modules": same(str, "lora.target_modules"),
    "sft.training.enable_gradient_checkpointing": same(bool, "actor_rollout_ref.model.enable_gradient_checkpointing"),
    "sft.training.validate_before_training": same(bool, "sft.validate_before_training"),
    "sft.training.hdfs_dir": gone(str, "Everything goes to sft.output_dir. Leave it out.", "sft.output_dir"),
    "sft.sokoban.dim_x": gone(int, SAME_LEVELS.format("dim_x")),
    "sft.sokoban.dim_y": gone(int, SAME_LEVELS.format("dim_y")),
    "sft.sokoban.num_boxes": gone(int, SAME_LEVELS.format("num_boxes")),
    "sft.sokoban.max_steps": gone(int, SAME_LEVELS.format("max_steps")),
    "sft.sokoban.search_depth": gone(int, SAME_LEVELS.format("search_depth")),
    "sft.frozenlake.size": gone(int, SAME_LEVELS.format("size")),
    "sft.frozenlake.p": gone(float, SAME_LEVELS.format("p")),
    "sft.frozenlake.is_slippery": gone(bool, SAME_LEVELS.format("is_slippery")),
}


def to_markdown() -> str:
    """The table of docs/legacy.md."""
    lines = ["| legacy key | modern key | how |", "|---|---|---|"]
    for key, row in TABLE.items():
        note = f"only its default is accepted: {row.note}" if row.is_gone else row.note
        modern = ", ".join(f"`{name}`" for name in row.keys)
        lines.append(f"| `{key}` | {modern} | {note} |")
    return "\n".join(lines)
