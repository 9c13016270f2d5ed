"""The environments by name. A type is imported when it is made, so an unused one costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ragen.config.strict import build_dataclass, did_you_mean
from ragen.env.base import TextEnv
from ragen.errors import ConfigError

REGISTRY: dict[str, str] = {
    "bandit": "ragen.env.bandit.env:BanditEnv",
    "two_armed_bandit": "ragen.env.two_armed_bandit.env:TwoArmedBanditEnv",
    "sokoban": "ragen.env.sokoban.env:SokobanEnv",
    "frozen_lake": "ragen.env.frozen_lake.env:FrozenLakeEnv",
    "countdown": "ragen.env.countdown.env:CountdownEnv",
    "gymnasium": "ragen.env.gymnasium:GymnasiumEnv",
}


def register(env_type: str, target: str) -> None:
    """Add an environment type; `target` is "module:Class"."""
    if REGISTRY.get(env_type, target) != target:
        raise ConfigError(f"env_type {env_type!r} is already {REGISTRY[env_type]}. Choose another name for {target}.")
    if target.count(":") != 1:
        raise ConfigError(f"env_type {env_type!r}: expected a target module:Class, got {target!r}. Write it like that.")
    REGISTRY[env_type] = target


def env_class(env_type: str) -> type[TextEnv]:
    """The class of an environment type."""
    if env_type not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise ConfigError(f"env_type {env_type!r} is unknown.{did_you_mean(env_type, REGISTRY)} Choose from: {known}.")
    module, _, name = REGISTRY[env_type].partition(":")
    return getattr(import_module(module), name)


def check_options(tag: str, env_type: str, env_config: Mapping[str, Any] | None) -> None:
    """Refuse options of a tag that its environment does not take. No environment is made."""
    build_dataclass(env_class(env_type).config_class, env_config or {}, f"custom_envs.{tag}.env_config")


def make_env(env_type: str, env_config: Mapping[str, Any] | None = None) -> TextEnv:
    """A new environment; options that are left out keep their defaults, and a wrong one is an error that names it."""
    cls = env_class(env_type)
    return cls(build_dataclass(cls.config_class, env_config or {}, env_type))
