"""`ragen serve`: an environment behind OpenEnv's protocol.

Tested in tests/env/test_openenv_server.py.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import yaml

from ragen.config import load_config
from ragen.config.arguments import whole_number
from ragen.config.extensions import entry_points, is_path
from ragen.config.load import CONFIG_DIR
from ragen.config.strict import did_you_mean
from ragen.env import REGISTRY
from ragen.env.openenv.server import MAX_SESSIONS, PORT, Served, serve
from ragen.errors import ConfigError


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="ragen serve",
        description="Serve an environment on this machine by OpenEnv's protocol; each connection plays its own.",
    )
    parser.add_argument(
        "env", metavar="ENV", help="a tag, such as SimpleSokoban, or an env_type: countdown, or your own module:Class"
    )
    parser.add_argument(
        "options", nargs="*", metavar="key=value", help="options of its env_config, such as num_boxes=2"
    )
    parser.add_argument("--config-name", default="base", help="configuration that holds the tags (base)")
    parser.add_argument("--config-dir", default=None, metavar="DIR", help=f"folder of that file ({CONFIG_DIR})")
    parser.add_argument("--port", type=whole_number(0, 65535), default=PORT, help=f"{PORT}; 0 takes any that is free")
    parser.add_argument(
        "--max-sessions", type=whole_number(1, 4096), default=MAX_SESSIONS, help=f"connections at once ({MAX_SESSIONS})"
    )
    args = parser.parse_intermixed_args(argv)
    serve(
        served(args.env, args.options, args.config_name, args.config_dir),
        port=args.port,
        max_sessions=args.max_sessions,
    )


def served(name: str, options: Sequence[str], config_name: str = "base", config_dir: str | None = None) -> Served:
    """The environment of a tag or a type, with the options of the command line."""
    tags = load_config(config_name, config_dir=config_dir).custom_envs
    own = {} if name in tags or name in REGISTRY else entry_points("envs")
    if not (name in tags or name in REGISTRY or name in own or is_path(name)):
        known = [*tags, *REGISTRY, *own]
        raise ConfigError(
            f"ENV {name!r} is unknown.{did_you_mean(name, known)} Choose from: {', '.join(known)}. "
            f"One of your own is written module:name, and tags of your own are found by --config-dir and --config-name."
        )
    env_type, env_config = (tags[name].env_type, tags[name].env_config) if name in tags else (name, None)
    return Served(name=name, env_type=env_type, env_config={**(env_config or {}), **dict(map(option, options))})


def option(word: str) -> tuple[str, Any]:
    """ "num_boxes=2" -> ("num_boxes", 2); values are YAML, as in a configuration."""
    key, sign, value = word.partition("=")
    if not (key and sign):
        raise ConfigError(f"{word!r} is not an option. Write key=value, such as num_boxes=2.")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"{word!r}: {value!r} is not YAML. Quote it, for example: {key}='\"text\"'.") from error
