"""The environments by name. A type is imported when it is made, so an unused one costs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any

from ragen.config.extensions import entry_points, is_path, load, refuse, unknown_name
from ragen.config.strict import build_dataclass
from ragen.env.base import TextEnv
from ragen.errors import ConfigError, MissingExtra, RagenError

REGISTRY: dict[str, str] = {
    "bandit": "ragen.env.bandit.env:BanditEnv",
    "two_armed_bandit": "ragen.env.two_armed_bandit.env:TwoArmedBanditEnv",
    "sokoban": "ragen.env.sokoban.env:SokobanEnv",
    "frozen_lake": "ragen.env.frozen_lake.env:FrozenLakeEnv",
    "countdown": "ragen.env.countdown.env:CountdownEnv",
    "sudoku": "ragen.env.sudoku.env:SudokuEnv",
    "game_2048": "ragen.env.game_2048.env:Game2048Env",
    "guess_number": "ragen.env.guess_number.env:GuessNumberEnv",
    "calculator": "ragen.env.calculator.env:CalculatorEnv",
    "python_expression": "ragen.env.python_expression.env:PythonExpressionEnv",
    "lookup": "ragen.env.lookup.env:LookupEnv",
}

ADAPTERS: dict[str, str] = {
    "gymnasium": "ragen.env.gymnasium:GymnasiumEnv",
    "gymnasium_text": "ragen.env.gymnasium:GymnasiumTextEnv",
    "reasoning_gym": "ragen.env.reasoning_gym.env:ReasoningGymEnv",
    "textarena": "ragen.env.textarena.env:TextArenaEnv",
    "textworld": "ragen.env.textworld.env:TextWorldEnv",
    "openenv": "ragen.env.openenv.env:OpenEnvEnv",
}
"""Environments of other packages, each behind an extra of its own (docs/adapters.md)."""

REGISTRY |= ADAPTERS


CALLED = {
    "__init__": ("__init__(self, config=None)", 2),
    "reset": ("reset(self, seed, member=0)", 3),
    "step": ("step(self, action)", 2),
    "render": ("render(self)", 1),
}
"""Method -> how it is written, and with how many arguments it is called, itself included."""


def register(env_type: str, target: str) -> None:
    """Add an environment type; `target` is "module:Class"."""
    if REGISTRY.get(env_type, target) != target:
        raise ConfigError(f"env_type {env_type!r} is already {REGISTRY[env_type]}. Choose another name for {target}.")
    if target.count(":") != 1:
        raise ConfigError(f"env_type {env_type!r}: expected a target module:Class, got {target!r}. Write it like that.")
    REGISTRY[env_type] = target


def env_class(env_type: str, *, key: str = "env_type") -> type[TextEnv]:
    """The class of an environment type: of the registry, or one's own (module:Class, or an entry point)."""
    if env_type in REGISTRY:
        module, _, name = REGISTRY[env_type].partition(":")
        return getattr(import_module(module), name)
    if not is_path(env_type) and env_type not in entry_points("envs"):
        raise ConfigError(unknown_name("envs", env_type, REGISTRY, key))
    own = load("envs", env_type, key)
    if not (isinstance(own, type) and issubclass(own, TextEnv)):
        raise refuse("envs", env_type, key, "it is not a class of that kind.")
    if problem := unfinished(own):
        raise refuse("envs", env_type, key, problem)
    return own


def unfinished(cls: type[TextEnv]) -> str:
    """What a class of one's own must still write, or write otherwise; empty where it can be made and called."""
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        return f"it does not write {' and '.join(missing)}."
    for name, (form, count) in CALLED.items():
        method = inspect.getattr_static(cls, name)
        try:
            if isinstance(method, FunctionType):
                inspect.signature(method).bind(*range(count))
        except TypeError as error:
            return f"its {name} cannot be called ({error}). Write def {form}."
    return ""


@contextmanager
def naming_tag(tag: str, env_type: str) -> Iterator[None]:
    """Errors within name the keys of the tag: sokoban.split -> custom_envs.Boxoban.env_config.split."""
    key, own = f"custom_envs.{tag}", f"{env_type}."
    try:
        yield
    except RagenError as error:
        text = str(error)
        if text.startswith(key):
            raise
        text = text.replace(f"Did you mean {own}", f"Did you mean {key}.env_config.")
        named = f"{key}.env_config.{text.removeprefix(own)}" if text.startswith(own) else f"{key}: {text}"
        raise (MissingExtra if isinstance(error, MissingExtra) else ConfigError)(named) from error


def check_options(tag: str, env_type: str, env_config: Mapping[str, Any] | None) -> None:
    """Refuse options of a tag that its environment does not take. No environment is made."""
    cls = env_class(env_type, key=f"custom_envs.{tag}.env_type")
    with naming_tag(tag, env_type):
        build_dataclass(cls.config_class, env_config or {}, f"custom_envs.{tag}.env_config")


def data_facts(tag: str, env_type: str, env_config: Mapping[str, Any] | None) -> dict[str, str]:
    """Key of a tag's option -> what the file that it names holds; empty where its environment reads no files."""
    cls, key = env_class(env_type, key=f"custom_envs.{tag}.env_type"), f"custom_envs.{tag}.env_config"
    with naming_tag(tag, env_type):
        found = cls.data_facts(build_dataclass(cls.config_class, env_config or {}, key))
    return {f"{key}.{option}": fact for option, fact in found.items()}


def make_env(env_type: str, env_config: Mapping[str, Any] | None = None) -> TextEnv:
    """A new environment; options that are left out keep their defaults, and a wrong one is an error that names it."""
    cls = env_class(env_type)
    return cls(build_dataclass(cls.config_class, env_config or {}, env_type))
