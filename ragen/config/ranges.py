"""The range of every number that has one."""

from collections.abc import Callable
from operator import attrgetter

from ragen.config.schema import Config
from ragen.errors import ConfigError

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

LARGEST_COUNT = 10**9
MOST_EPISODES = 10**6
"""Of one rollout: each holds an environment, a conversation and a cache."""

RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "at least 1 and at most 10^9": (
        lambda x: 1 <= x <= LARGEST_COUNT,
        (
            "micro_batch_size_per_gpu",
            "log_prob_micro_batch_size_per_gpu",
            "ppo_mini_batch_size",
            f"{ACTOR}.ppo_mini_batch_size",
            f"{ACTOR}.ppo_micro_batch_size_per_gpu",
            f"{ACTOR}.ppo_epochs",
            f"{ACTOR}.ppo_max_token_len_per_gpu",
            "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
            f"{ROLLOUT}.response_length",
            f"{ROLLOUT}.max_model_len",
            f"{ROLLOUT}.max_num_seqs",
            f"{ROLLOUT}.max_num_batched_tokens",
            f"{ROLLOUT}.tensor_model_parallel_size",
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
            f"{ROLLOUT}.gradient_analysis_num_buckets",
            f"{ROLLOUT}.api.max_concurrency",
            "critic.ppo_mini_batch_size",
            "critic.ppo_micro_batch_size_per_gpu",
            "critic.ppo_epochs",
            "critic.ppo_max_token_len_per_gpu",
            "algorithm.kl_ctrl.horizon",
            "trainer.total_training_steps",
            "trainer.validation_steps",
            "trainer.max_actor_ckpt_to_keep",
            "trainer.max_critic_ckpt_to_keep",
            "trainer.n_gpus_per_node",
            "trainer.nnodes",
            "trainer.gradient_analysis_env_groups",
            "trainer.gradient_analysis_group_size",
            "trainer.early_stop.variance_baseline_steps",
            "ray_kwargs.ray_init.num_cpus",
            "agent_proxy.max_turn",
            "agent_proxy.max_actions_per_turn",
            "es_manager.train.env_groups",
            "es_manager.train.group_size",
            "es_manager.val.env_groups",
            "es_manager.val.group_size",
            "collapse_detection.micro_batch_size",
        ),
    ),
    "greater than 0": (
        lambda x: x > 0,
        (
            "lora.alpha",
            f"{ACTOR}.grad_clip",
            f"{ROLLOUT}.temperature",
            f"{ROLLOUT}.importance_cap",
            f"{ROLLOUT}.canary_bound",
            f"{ROLLOUT}.api.timeout_s",
            "critic.grad_clip",
            "critic.cliprange_value",
            "algorithm.kl_ctrl.target_kl",
            "trainer.watchdog_minutes",
            "trainer.hang_timeout_minutes",
            "collapse_detection.std_eps",
        ),
    ),
    "0 or more": (lambda x: x >= 0, ("seed.train", "seed.val")),
    "0 or more, at most 10^9": (
        lambda x: 0 <= x <= LARGEST_COUNT,
        (
            "lora.rank",
            f"{ACTOR}.optim.num_cycles",
            f"{ACTOR}.optim.weight_decay",
            f"{ACTOR}.entropy_coeff",
            f"{ACTOR}.kl_loss_coef",
            f"{ACTOR}.clip_ratio",
            f"{ACTOR}.clip_ratio_high",
            f"{ROLLOUT}.val_kwargs.temperature",
            f"{ROLLOUT}.rollout_filter_selection_eps",
            f"{ROLLOUT}.api.max_retries",
            "critic.optim.num_cycles",
            "critic.optim.weight_decay",
            "algorithm.gigpo_step_weight",
            "algorithm.kl_ctrl.kl_coef",
            "trainer.critic_warmup",
            "trainer.max_restarts",
            "trainer.generations_to_log_to_wandb.val",
            "trainer.early_stop.variance_window",
            "trainer.early_stop.low_success_patience",
        ),
    ),
    "from 0 to 1": (
        lambda x: 0 <= x <= 1,
        (
            f"{ACTOR}.clip_ratio_low",
            f"{ACTOR}.optim.lr",
            f"{ACTOR}.optim.lr_warmup_steps_ratio",
            f"{ACTOR}.optim.min_lr_ratio",
            "critic.optim.lr",
            "critic.optim.lr_warmup_steps_ratio",
            "critic.optim.min_lr_ratio",
            "algorithm.gamma",
            "algorithm.lam",
            "algorithm.high_level_gamma",
            "trainer.early_stop.variance_factor",
            "trainer.early_stop.min_val_success",
        ),
    ),
    "above 0 and at most 1": (
        lambda x: 0 < x <= 1,
        (f"{ROLLOUT}.top_p", f"{ROLLOUT}.val_kwargs.top_p", f"{ROLLOUT}.gpu_memory_utilization"),
    ),
    "from 0 to below 1": (lambda x: 0 <= x < 1, ("collapse_detection.ema_decay",)),
    "above 1": (lambda x: x > 1, (f"{ACTOR}.clip_ratio_c",)),
    "0 or less": (lambda x: x <= 0, ("es_manager.format_penalty",)),
    "-1 (all) or at least 1": (lambda x: x == -1 or x >= 1, (f"{ROLLOUT}.top_k", f"{ROLLOUT}.val_kwargs.top_k")),
}

NEEDED_TEXTS = (
    "model_path",
    "actor_rollout_ref.model.path",
    "critic.model.path",
    "trainer.project_name",
    "trainer.experiment_name",
    "trainer.default_local_dir",
    "trainer.local_log_dir",
    f"{ROLLOUT}.api.base_url",
    f"{ROLLOUT}.api.model",
    "ray_kwargs.ray_init.address",
    "trainer.rollout_data_dir",
    "trainer.validation_data_dir",
)
"""Texts that name something; null is fine where the schema has it."""


def check_ranges(config: Config) -> None:
    for wanted, (is_valid, keys) in RANGES.items():
        for key in keys:
            value = attrgetter(key)(config)
            if value is not None and not is_valid(value):
                raise ConfigError(f"{key} is {value}. Set it to a number {wanted}.")
    for key in NEEDED_TEXTS:
        value = attrgetter(key)(config)
        if value is not None and not value.strip():
            raise ConfigError(f"{key} is {value!r}. Set it to a text that is not empty, or leave it out.")
    check_num_episodes(config)


def check_num_episodes(config: Config) -> None:
    for name in ("train", "val"):
        envs = getattr(config.es_manager, name)
        if (num := envs.env_groups * envs.group_size) > MOST_EPISODES:
            raise ConfigError(
                f"es_manager.{name}: env_groups {envs.env_groups} x group_size {envs.group_size} is {num} episodes in "
                f"one rollout. Lower them to {MOST_EPISODES} or fewer."
            )


def check_optimizers(config: Config) -> None:
    for key in (f"{ACTOR}.optim.betas", "critic.optim.betas"):
        betas = attrgetter(key)(config)
        if not all(0 <= beta < 1 for beta in betas):
            raise ConfigError(f"{key} is {list(betas)}. Set two numbers from 0 to below 1, for example [0.9,0.999].")
