"""A configuration from Python: a name, and overrides as on the command line or as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen import config as configs
from ragen.config.quoting import quoted
from ragen.config.schema import Config
from ragen.errors import ConfigError

ENVIRONMENTS = "custom_envs."
"""Below this key new ones may be added."""


def load_config(
    name: str = "base", *overrides: str | Mapping[str, Any], config_dir: str | Path | None = None
) -> Config:
    """The typed, checked, frozen configuration `name`, with values changed.

    An override is a word as on the command line, or a dictionary from dotted keys to values.

    Examples:
        >>> config = load_config("quickstart", "trainer.test_freq=5", {"seed.train": 7, "trainer.logger": []})
        >>> config.trainer.test_freq, config.seed.train, config.trainer.logger
        (5, 7, ())

    Args:
        name: A file of `config/` without its suffix; `ragen config --config-name NAME` prints it.
        overrides: Later ones win. A dictionary may add environments: `{"custom_envs.Mine": {...}}`.
        config_dir: Another folder to find the name in; its files may build on those of RAGEN.

    Raises:
        ConfigError: The first thing that is wrong, with the key, its value and what to write instead.
    """
    words: list[str] = []
    for override in overrides:
        words += [override] if isinstance(override, str) else [to_word(key, value) for key, value in override.items()]
    return configs.load_config(name, words, config_dir)


def to_word(key: str, value: Any) -> str:
    """An override as the command line has it: "a.b", [1, None] -> "a.b=[1,null]"."""
    return f"{'++' if key.startswith(ENVIRONMENTS) else ''}{key}={_to_flow(key, value)}"


def _to_flow(key: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return quoted(str(value))
    if isinstance(value, list | tuple):
        return "[" + ",".join(_to_flow(key, entry) for entry in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_to_flow(f'{key}.{name}', entry)}" for name, entry in value.items()) + "}"
    raise ConfigError(
        f"{key}: a configuration holds numbers, texts, lists and dictionaries, got {value!r} ({type(value).__name__}). "
        "A part of your own is named by its path: 'my_pkg.adv:loo'."
    )
