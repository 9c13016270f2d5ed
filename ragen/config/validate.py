"""Checks between keys, done once at start. Each message names the key, its value and the way out."""

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

from ragen.config.bounds import Bound
from ragen.config.estimators import ESTIMATORS
from ragen.config.schema import Config, EnvSetConfig
from ragen.config.strict import did_you_mean
from ragen.errors import ConfigError

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

MOST_EPISODES = 10**6
"""Of one rollout: each holds an environment, a conversation and a cache."""

FILTER_VALUES = {
    "top_p": Bound(lambda v: 0 < v <= 1, "With top_p: above 0 and at most 1, the share of all group scores to keep."),
    "top_k": Bound(lambda v: 0 < v <= 1, "With top_k: above 0 and at most 1, the share of the groups to keep."),
    "top_k_abs": Bound(lambda v: v >= 1 and v == int(v), "With top_k_abs: a whole number of groups, 1 or more."),
    "min_p": Bound(lambda v: 0 <= v <= 1, "With min_p: from 0 to 1, the share of the best group score to reach."),
}
"""rollout_filter_strategy -> what rollout_filter_value must be; z_score takes any number of standard deviations."""


def validate(config: Config) -> None:
    """Raise a ConfigError if values contradict each other; each by itself was checked when the Config was built."""
    check_num_episodes(config)
    check_tags(config)
    check_level_pool(config)
    check_tag_table(config)
    check_gpus(config)
    check_filter(config)
    check_lengths(config)
    check_algorithm(config)
    check_log_probs(config)
    check_context_window(config)
    check_resume(config)
    check_checkpoints(config)
    check_gradient_analysis(config)
    if config.algorithm.adv_estimator in ESTIMATORS:  # else known once loaded: ragen/trainer/starting/own_parts.py
        check_needs(config)


def check_needs(config: Config) -> None:
    """What the estimator needs, against the keys of the critic and the batch."""
    check_batch(config)
    check_values(config)


def check_num_episodes(config: Config) -> None:
    for key, envs in env_sets(config):
        if (num := envs.env_groups * envs.group_size) > MOST_EPISODES:
            raise ConfigError(
                f"{key}: env_groups {envs.env_groups} x group_size {envs.group_size} is {num} episodes in "
                f"one rollout. Lower them to {MOST_EPISODES} or fewer."
            )


def check_tags(config: Config) -> None:
    for key, envs in env_sets(config):
        tags, n_groups = envs.env_configs.tags, envs.env_configs.n_groups
        for tag in tags:
            if tag not in config.custom_envs:
                raise ConfigError(
                    f"{key}.env_configs.tags: {tag!r} is not in custom_envs.{did_you_mean(tag, config.custom_envs)} "
                    f"Choose from {', '.join(config.custom_envs)}, or write a configuration with it below custom_envs "
                    "and name its folder with --config-dir."
                )
        if len(tags) != len(n_groups):
            raise ConfigError(
                f"{key}.env_configs: {len(tags)} tags {list(tags)}, but {len(n_groups)} entries in "
                f"n_groups {list(n_groups)}. Give n_groups one number per tag."
            )
        if min(n_groups, default=0) < 1:
            raise ConfigError(
                f"{key}.env_configs.n_groups is {list(n_groups)}. Give at least one tag, each with 1 group or more."
            )
        if sum(n_groups) != envs.env_groups:
            raise ConfigError(
                f"{key}: n_groups sums to {sum(n_groups)}, env_groups is {envs.env_groups}. Make them equal: "
                f"{key}.env_configs.n_groups=[...] or {key}.env_groups={sum(n_groups)}."
            )


def check_level_pool(config: Config) -> None:
    train = config.es_manager.train
    most = max(Counter(train.group_tags).values())
    if train.levels != "fresh" and train.level_pool.size < most:
        raise ConfigError(
            f"es_manager.train.level_pool.size is {train.level_pool.size}, but a tag has {most} groups, each with a "
            f"level of its own. Set it to {most} or more."
        )


def check_tag_table(config: Config) -> None:
    for name, tag in config.custom_envs.items():
        if tag.max_workers > 1 and not tag.parallel_friendly:
            raise ConfigError(
                f"custom_envs.{name}.max_workers is {tag.max_workers}, but parallel_friendly is False. "
                f"Set parallel_friendly: True, or max_workers: 1."
            )


def check_gpus(config: Config) -> None:
    ids = [gpu for gpu in config.system.CUDA_VISIBLE_DEVICES.split(",") if gpu.strip()]
    wanted = config.trainer.n_gpus_per_node
    if ids and len(ids) != wanted:
        raise ConfigError(
            f"system.CUDA_VISIBLE_DEVICES lists {len(ids)} GPUs ({config.system.CUDA_VISIBLE_DEVICES}), "
            f"trainer.n_gpus_per_node is {wanted}. Make them equal, for example trainer.n_gpus_per_node={len(ids)}."
        )
    shards = config.actor_rollout_ref.rollout.tensor_model_parallel_size
    if wanted * config.trainer.nnodes % shards:
        raise ConfigError(
            f"{ROLLOUT}.tensor_model_parallel_size is {shards}, which does not divide the "
            f"{wanted * config.trainer.nnodes} GPUs (trainer.n_gpus_per_node x trainer.nnodes). Choose a divisor."
        )


def check_filter(config: Config) -> None:
    rollout = config.actor_rollout_ref.rollout
    strategy, value = rollout.rollout_filter_strategy, rollout.rollout_filter_value
    if strategy in FILTER_VALUES:
        FILTER_VALUES[strategy].check(value, f"{ROLLOUT}.rollout_filter_value")
    is_off = strategy == "top_p" and value == 1 and rollout.rollout_filter_include_zero
    if config.es_manager.train.group_size == 1 and rollout.rollout_filter_metric.endswith("variance") and not is_off:
        raise ConfigError(
            f"{ROLLOUT}.rollout_filter_metric is {rollout.rollout_filter_metric}, but es_manager.train.group_size is 1 "
            f"and one episode has no variance. Use a group_size of 2 or more, or switch the filter off: "
            f"{ROLLOUT}.rollout_filter_strategy=top_p {ROLLOUT}.rollout_filter_value=1 "
            f"{ROLLOUT}.rollout_filter_include_zero=True."
        )


def check_batch(config: Config) -> None:
    """The episodes that survive the filter must fill one mini batch."""
    envs, rollout = config.es_manager.train, config.actor_rollout_ref.rollout
    value = rollout.rollout_filter_value
    kept_share = {"top_p": value, "top_k": value, "top_k_abs": min(1.0, value / envs.env_groups)}
    episodes = envs.env_groups * envs.group_size * kept_share.get(rollout.rollout_filter_strategy, 1.0)
    # In the limited modes every turn is a sample of its own.
    turns = 1 if config.agent_proxy.context_window_mode == "full" else config.agent_proxy.max_turn
    keys = (f"{ACTOR}.ppo_mini_batch_size",) + (("critic.ppo_mini_batch_size",) if config.uses_critic else ())
    for key in keys:
        mini_batch = attrgetter(key)(config)
        if episodes * turns < mini_batch:
            raise ConfigError(
                f"{key} is {mini_batch}, but a rollout keeps only about {episodes * turns:g} samples "
                f"(env_groups {envs.env_groups} x group_size {envs.group_size} x filter). "
                f"Lower ppo_mini_batch_size, or raise es_manager.train.env_groups or group_size."
            )


def check_lengths(config: Config) -> None:
    rollout = config.actor_rollout_ref.rollout
    if rollout.response_length >= rollout.max_model_len:
        raise ConfigError(
            f"{ROLLOUT}.response_length is {rollout.response_length}, {ROLLOUT}.max_model_len is "
            f"{rollout.max_model_len}: no room for a prompt. Raise max_model_len or lower response_length."
        )


def check_algorithm(config: Config) -> None:
    algorithm, estimator = config.algorithm, config.algorithm.adv_estimator
    if algorithm.bi_level_gae and (estimator not in ESTIMATORS or ESTIMATORS[estimator].bi_level is None):
        raise ConfigError(
            f"algorithm.bi_level_gae is True, but algorithm.adv_estimator is {estimator}. "
            "Set algorithm.adv_estimator=gae."
        )
    if algorithm.bi_level_gae and config.agent_proxy.use_turn_scores:
        raise ConfigError(
            "algorithm.bi_level_gae is True together with agent_proxy.use_turn_scores=True. Set use_turn_scores=False."
        )
    mode = config.agent_proxy.context_window_mode
    if config.agent_proxy.use_turn_scores and mode != "full":
        raise ConfigError(
            f"agent_proxy.use_turn_scores is True, but with context_window_mode={mode} every turn is a sample of its "
            f"own, and what it leads to would be lost. Set use_turn_scores=False, or context_window_mode=full."
        )


def check_values(config: Config) -> None:
    """An estimator that reads values has a critic, and no keys that only others read."""
    algorithm, estimator = config.algorithm, config.algorithm.adv_estimator
    if "values" not in algorithm.needs:
        return
    if config.critic.enable is False:
        raise ConfigError(
            f"critic.enable is False, but algorithm.adv_estimator={estimator} needs values. Set critic.enable=null."
        )
    for key in ("algorithm.soft_advantage_reweight", f"{ACTOR}.grpo_advantage_length_weight"):
        if attrgetter(key)(config):
            raise ConfigError(
                f"{key} is True, but has no effect with adv_estimator={estimator}. Set it to False, or use grpo."
            )


def check_log_probs(config: Config) -> None:
    rollout = config.actor_rollout_ref.rollout
    if config.algorithm.use_kl_in_reward and config.algorithm.kl_penalty == "full":
        raise ConfigError(
            "algorithm.kl_penalty=full needs whole distributions, which rewards do not have. "
            f"Choose low_var_kl, or make it a loss: algorithm.use_kl_in_reward=False {ACTOR}.use_kl_loss=True "
            f"{ACTOR}.kl_loss_type=full, with {ACTOR}.kl_loss_coef above 0."
        )
    if rollout.importance_cap is not None and rollout.old_log_probs == "engine":
        raise ConfigError(
            f"{ROLLOUT}.importance_cap={rollout.importance_cap} compares the trainer's log-probs with the engine's. "
            f"Set {ROLLOUT}.old_log_probs=recompute, or leave importance_cap null."
        )
    if config.algorithm.soft_advantage_reweight and config.es_manager.train.group_size == 1:
        raise ConfigError(
            "algorithm.soft_advantage_reweight=True weights groups by their deviation, which is 0 with "
            "es_manager.train.group_size=1. Raise group_size or turn it off."
        )


def check_context_window(config: Config) -> None:
    proxy = config.agent_proxy
    if proxy.context_window_mode != "full" and proxy.max_context_window == 0:
        raise ConfigError(
            f"agent_proxy.max_context_window is 0, so {proxy.context_window_mode} would show no turn. "
            f"Set 1 or more, or -1 for all."
        )


def check_resume(config: Config) -> None:
    trainer = config.trainer
    if trainer.keep_best and (trainer.save_freq <= 0 or trainer.test_freq <= 0):
        raise ConfigError(
            f"trainer.keep_best=True saves after validations, but trainer.save_freq is {trainer.save_freq} and "
            f"trainer.test_freq is {trainer.test_freq}. Make both at least 1."
        )
    mode, path = config.trainer.resume_mode, config.trainer.resume_from_path
    if mode == "resume_path" and "global_step_" not in (path or ""):
        raise ConfigError(
            f"trainer.resume_from_path is {path or 'null'}, but resume_mode=resume_path needs the path of a "
            f"global_step_<N> folder, for example checkpoints/ragen/test/global_step_100."
        )
    if mode != "resume_path" and path:
        raise ConfigError(
            f"trainer.resume_from_path is {path}, but trainer.resume_mode is {mode}. Set resume_mode=resume_path."
        )


def check_checkpoints(config: Config) -> None:
    for key in (f"{ACTOR}.checkpoint", "critic.checkpoint"):
        contents = attrgetter(key)(config)
        if set(contents.load_contents) != set(contents.save_contents):
            raise ConfigError(
                f"{key}.load_contents is {list(contents.load_contents)}, save_contents is "
                f"{list(contents.save_contents)}. A resumed run loads what was saved: leave load_contents out."
            )


def check_gradient_analysis(config: Config) -> None:
    trainer = config.trainer
    is_on = trainer.gradient_analysis_mode and trainer.gradient_analysis_every > 0
    for key in ("gradient_analysis_only", "exit_after_gradient_analysis"):
        if getattr(trainer, key) and not is_on:
            raise ConfigError(
                f"trainer.{key} is True, but no analysis is planned (trainer.gradient_analysis_mode is "
                f"{trainer.gradient_analysis_mode}, gradient_analysis_every is {trainer.gradient_analysis_every}). "
                f"Set gradient_analysis_mode=True and gradient_analysis_every to 1 or more."
            )


def env_sets(config: Config) -> Iterator[tuple[str, EnvSetConfig]]:
    yield "es_manager.train", config.es_manager.train
    yield "es_manager.val", config.es_manager.val
