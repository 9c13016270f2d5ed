"""The keys that people change: what `ragen train --help` shows of the whole tree."""

from __future__ import annotations

import textwrap
from operator import attrgetter
from typing import Any

from ragen.config.load import load_config
from ragen.config.schema import Config
from ragen.config.show import sentences, to_flow

COMMON_KEYS = (
    "model_path",
    "trainer.experiment_name",
    "trainer.total_training_steps",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.logger",
    "es_manager.train.env_groups",
    "es_manager.train.group_size",
    "es_manager.train.env_configs.tags",
    "es_manager.val.env_groups",
    "agent_proxy.max_turn",
    "agent_proxy.max_actions_per_turn",
    "agent_proxy.enable_think",
    "actor_rollout_ref.rollout.response_length",
    "actor_rollout_ref.rollout.rollout_filter_value",
    "algorithm.adv_estimator",
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.kl_loss_coef",
    "ppo_mini_batch_size",
    "seed.train",
)


def help_of_keys() -> str:
    """Two lines per key: with its value in base, and what it means."""
    config = load_config("base")
    lines = ["keys that are changed most, with the values of base (all of them: ragen config):"]
    for key in COMMON_KEYS:
        value, sentence = look_up(config, key)
        lines.append(f"  {key}={to_flow(value)}")
        lines += textwrap.wrap(sentence, 110, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def look_up(config: Config, key: str) -> tuple[Any, str]:
    """The value of a key and its sentence."""
    parent, _, name = key.rpartition(".")
    node = attrgetter(parent)(config) if parent else config
    return getattr(node, name), sentences(type(node))[name]
