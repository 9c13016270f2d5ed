"""Parts of one's own, and environments of other packages, tried before a run begins: mistakes are errors that name
their key.

What loads torch is imported only where a part of that kind is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from ragen.algorithms.filter_strategies import STRATEGIES, FilterSettings
from ragen.config.actor_rollout_ref import POLICY_LOSSES
from ragen.config.estimators import ESTIMATORS
from ragen.config.extensions import refuse
from ragen.config.schema import Config, EnvConfigsConfig, EnvSetConfig
from ragen.config.validate import check_needs, env_sets
from ragen.env.boundary import EnvFault
from ragen.env.checker import check_briefly
from ragen.env.registry import ADAPTERS, REGISTRY, make_env
from ragen.errors import ConfigError
from ragen.llm_agent.es_manager import EsManager, levels_from
from ragen.llm_agent.rewards import KEY as REWARD_KEY
from ragen.trainer.starting.own_functions import check_own_functions


def check_own_parts(config: Config, *, has_tried_environments: bool = False) -> None:
    """Load and try what the configuration names of one's own or of other packages; trackers are imported before."""
    check_importable(config)
    check_functions(config)
    if not has_tried_environments:
        try_environments(config)
    check_own_functions(config)


def try_environments(config: Config) -> None:
    """Start and try what others wrote."""
    for tag in foreign_tags(config):
        check_environment(config, tag)


def check_functions(config: Config) -> None:
    algorithm, parts = config.algorithm, config.actor_rollout_ref
    if algorithm.adv_estimator not in ESTIMATORS:
        from ragen.algorithms.own_parts import check_estimator

        check_estimator(algorithm.adv_estimator)
        check_needs(config)
    if parts.actor.policy_loss not in POLICY_LOSSES:
        from ragen.algorithms.own_parts import check_policy_loss

        check_policy_loss(parts.actor.policy_loss)
    if parts.rollout.rollout_filter_strategy not in STRATEGIES:
        from ragen.algorithms.own_parts import check_strategy

        check_strategy(parts.rollout.rollout_filter_strategy, FilterSettings.from_config(parts.rollout))


def check_environment(config: Config, tag: str) -> None:
    """Refuse an environment that cannot be made or does not start on the first validation level, and one of one's own
    that breaks its contract in its first actions there."""
    spec, key = config.custom_envs[tag], f"custom_envs.{tag}.env_type"
    one = EnvSetConfig(env_groups=1, group_size=1, env_configs=EnvConfigsConfig(tags=(tag,), n_groups=(1,)))
    with closing(EsManager(one, config.custom_envs)) as environments:
        seat = environments.reset(levels_from(config.seed.val, 1))[0]
    why = f"level {seat.seed} does not start: {seat.error}" if seat.status.is_fault else ""
    if spec.env_type in ADAPTERS:
        if why:
            raise ConfigError(f"{key}={spec.env_type}: {why.rstrip('.')}. Check custom_envs.{tag}.env_config.")
        return
    if not why:
        try:
            check_briefly(partial(make_env, spec.env_type, spec.env_config), seat.seed, limit_s=spec.step_timeout)
        except EnvFault as fault:
            why = f"tried on level {seat.seed}: {fault}"
    if why:
        raise refuse("envs", spec.env_type, key, f"{why.rstrip('.')}. Try it with ragen.check_env.")


def check_importable(config: Config) -> None:
    """Refuse what the processes of ranks cannot import."""
    for key, name in own_names(config):
        if config.uses_fsdp and name.startswith("__main__:"):
            raise ConfigError(
                f"{key}={name}: processes of several devices cannot import from the running program. Move it into a "
                "module that they find, on Python's path or in the working directory."
            )


def foreign_tags(config: Config) -> list[str]:
    """The tags that are played and whose environments others wrote: one's own, and those of other packages."""
    tags = dict.fromkeys(tag for _, envs in env_sets(config) for tag in envs.env_configs.tags)
    ours = REGISTRY.keys() - ADAPTERS.keys()
    return [tag for tag in tags if config.custom_envs[tag].env_type not in ours]


def own_tags(config: Config) -> list[str]:
    """Those of them that are not of the registry."""
    return [tag for tag in foreign_tags(config) if config.custom_envs[tag].env_type not in REGISTRY]


def own_names(config: Config) -> Iterator[tuple[str, str]]:
    """Key and name of every part that may be one's own and that ranks load; trackers are the driver's."""
    yield "algorithm.adv_estimator", config.algorithm.adv_estimator
    yield "actor_rollout_ref.actor.policy_loss", config.actor_rollout_ref.actor.policy_loss
    yield "actor_rollout_ref.rollout.rollout_filter_strategy", config.actor_rollout_ref.rollout.rollout_filter_strategy
    if config.es_manager.reward_function is not None:
        yield REWARD_KEY, config.es_manager.reward_function
    for tag in own_tags(config):
        yield f"custom_envs.{tag}.env_type", config.custom_envs[tag].env_type
