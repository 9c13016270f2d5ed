"""The range of every number that has one."""

from collections.abc import Callable
from operator import attrgetter

from ragen.config.schema import Config
from ragen.errors import ConfigError

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
    "at least 1": (
        lambda x: x >= 1,
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
    "0 or more": (
        lambda x: x >= 0,
        (
            "lora.rank",
            "seed.train",
            "seed.val",
            f"{ACTOR}.optim.lr",
            f"{ACTOR}.optim.weight_decay",
            f"{ACTOR}.entropy_coeff",
            f"{ACTOR}.kl_loss_coef",
            f"{ACTOR}.clip_ratio",
            f"{ACTOR}.clip_ratio_high",
            f"{ROLLOUT}.val_kwargs.temperature",
            f"{ROLLOUT}.rollout_filter_selection_eps",
            f"{ROLLOUT}.api.max_retries",
            "critic.optim.lr",
            "critic.optim.weight_decay",
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
            f"{ACTOR}.optim.lr_warmup_steps_ratio",
            f"{ACTOR}.optim.min_lr_ratio",
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


def check_ranges(config: Config) -> None:
    for wanted, (is_valid, keys) in RANGES.items():
        for key in keys:
            value = attrgetter(key)(config)
            if value is not None and not is_valid(value):
                raise ConfigError(f"{key} is {value}. Set it to a number {wanted}.")


def check_optimizers(config: Config) -> None:
    for key in (f"{ACTOR}.optim.betas", "critic.optim.betas"):
        betas = attrgetter(key)(config)
        if not all(0 <= beta < 1 for beta in betas):
            raise ConfigError(f"{key} is {list(betas)}. Set two numbers from 0 to below 1, for example [0.9,0.999].")
