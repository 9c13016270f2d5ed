"""Configuration: YAML and overrides in, one typed, checked, frozen Config out."""

from ragen.config.load import (
    CONFIG_DIR,
    argument_parser,
    build_config,
    config_from_args,
    load_config,
    to_dict,
)
from ragen.config.schema import Config, EnvTag
from ragen.config.strict import build_dataclass

__all__ = [
    "CONFIG_DIR",
    "Config",
    "EnvTag",
    "argument_parser",
    "build_config",
    "build_dataclass",
    "config_from_args",
    "load_config",
    "to_dict",
]
