"""What a legacy command line asks for: defaults, environment file, CONFIG_ variables and arguments, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragen.config.load import CONFIG_DIR
from ragen.config.strict import did_you_mean, nearest
from ragen.errors import ConfigError
from ragen.files import flatten, read_yaml
from ragen.legacy.table import TABLE

LEGACY_DIR = CONFIG_DIR / "legacy"
VARIABLE = "CONFIG_"
"""Environment variables with this prefix are settings: CONFIG_TRAINING__MAX_TURNS is training.max_turns."""


@dataclass(kw_only=True, slots=True)
class Settings:
    """Legacy keys and their values."""

    env: str
    values: dict[str, Any]
    """Dotted key -> value, typed as the table says; keys under env as they were written."""
    given: set[str] = field(default_factory=set)
    """Keys that a variable or an argument set."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def env_config(self) -> dict[str, Any]:
        """What stands under env."""
        return {key.removeprefix("env."): value for key, value in self.values.items() if key.startswith("env.")}


def read_settings(env: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Settings:
    """Merge everything; an unknown key, a wrong type or a key that means nothing any more is an error."""
    defaults = flatten(read_yaml(LEGACY_DIR / "base.yaml"))
    defaults |= flatten(read_yaml(LEGACY_DIR / f"{check_env(env)}.yaml"))
    given = {
        name.removeprefix(VARIABLE).lower().replace("__", "."): parse_value(text)
        for name, text in variables.items()
        if name.startswith(VARIABLE)
    }
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if equals:  # words without = have always been ignored
            given[key.strip()] = parse_value(text)
    merged = (defaults | given).items()
    values = {key: check(key, value, default=defaults.get(key), env=env) for key, value in merged}
    return Settings(env=env, values=values, given=set(given))


def check_env(env: str) -> str:
    known = sorted(file.stem for file in LEGACY_DIR.glob("*.yaml") if file.stem != "base")
    if env not in known:
        raise ConfigError(
            f"There is no environment {env!r}.{did_you_mean(env, known)} Choose from: {', '.join(known)}."
        )
    return env


def check(key: str, value: Any, *, default: Any, env: str) -> Any:
    """The value of a key in its type; what cannot be honoured is an error that names the modern key."""
    if key.startswith("env.") and key not in TABLE:
        return value  # an option of the environment, which checks it
    if key not in TABLE:
        raise ConfigError(f"{key}: unknown key.{suggest(key)} All keys, old and new: docs/legacy.md.")
    row = TABLE[key]
    value = row.convert(key, value)
    allowed = (row.convert(key, default), env if key == "sft.env_type" else None)
    if row.is_gone and value not in allowed:
        raise ConfigError(f"{key}={value}: no longer a setting. {row.note}")
    return value


def suggest(key: str) -> str:
    """The legacy key that was probably meant, and what it is called now."""
    by_modern = {modern: legacy for legacy, row in reversed(TABLE.items()) for modern in row.keys}
    by_last_name = {legacy.rsplit(".", 1)[-1]: legacy for legacy in reversed(TABLE)}
    last = nearest(key.rsplit(".", 1)[-1], by_last_name)
    match = by_modern.get(key) or nearest(key, TABLE) or by_last_name.get(last or "")
    if match is None:
        return ""
    modern = f" (now {TABLE[match].modern})" if TABLE[match].modern else ""
    return f" Did you mean {match}{modern}?"


def parse_value(text: str) -> Any:
    """The value rules of the legacy command line.

    "true" -> True, "5" -> 5, "0.7" -> 0.7, "" -> None, "1e-6" -> "1e-6" (read as a number where one is expected)
    """
    text = text.strip()
    if not text or text.lower() in ("null", "none"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"\d+\.\d*|\.\d+", text):
        return float(text)
    return text
