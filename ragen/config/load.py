"""From a config name and `key=value` overrides to a checked Config, for every command."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen.config.hints import explain_unknown_override, list_paths
from ragen.config.schema import Config
from ragen.config.strict import build_dataclass, did_you_mean, shorten
from ragen.config.validate import validate
from ragen.errors import ConfigError

PACKAGED_CONFIGS = Path(__file__).resolve().parent / "files"
"""The YAML files of a wheel; setup.py copies them there, so that a repository has none."""
CONFIG_DIR = PACKAGED_CONFIGS if PACKAGED_CONFIGS.is_dir() else Path(__file__).resolve().parents[2] / "config"
"""The YAML files that belong to this code: of the wheel, or of the repository."""

TAG_TABLE = "envs"  # part of every config, not a config by itself

WITHOUT_KEY: dict[str, Any] = {
    "agent_proxy": {"example_answer": False},
    "es_manager": {"train": {"levels": "fresh", "refill": 0}},
}
"""What versions without a key did, where another value is another training: a stored configuration without it means
this."""

OLD_FILTER_VALUE = "actor_rollout_ref.rollout.rollout_filter_ratio"
"""What rollout_filter_value was called; still read where that is left at its default."""
VAL_SEED = 123
"""What seed.val=null means."""


def load_config(
    config_name: str = "base", overrides: Sequence[str] = (), config_dir: str | Path | None = None
) -> Config:
    """The typed, validated configuration; raises ConfigError on the first thing that is wrong."""
    return build_config(compose(config_name, overrides, config_dir))


def load_run_config(overrides: Sequence[str], run: str | Path) -> Config:
    """The configuration of a run directory; keys that it lacks mean what its version did: WITHOUT_KEY, or base."""
    return build_config(compose_run(overrides, run))


def compose_run(overrides: Sequence[str], run: str | Path) -> dict[str, Any]:
    """The tree of a run directory, like `compose`; overrides may also set keys that its version did not have."""
    absent, stored = unwritten(), compose("config", (), run)
    added = {*list_paths(absent)} - {*list_paths(stored)}
    words = [f"+{word}" if word.partition("=")[0].strip() in added else word for word in overrides]
    return _filled(compose("config", words, run) if words else stored, absent)


def unwritten() -> dict[str, Any]:
    """What each key means where a stored configuration lacks it."""
    return _filled(WITHOUT_KEY, compose("base"))


def as_meant(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of a config.yaml, with what its version did where it lacks a key and base does otherwise."""
    return _filled(stored, WITHOUT_KEY)


def build_config(data: Mapping[str, Any]) -> Config:
    """A Config from a plain, resolved tree: what `compose` and `to_dict` return and run directories hold."""
    config = build_dataclass(Config, data)
    validate(config)
    return config


def to_dict(config: Config) -> dict[str, Any]:
    """The configuration as plain dictionaries, lists and scalars, ready for JSON or YAML."""
    return _plain(dataclasses.asdict(config))


def compose(
    config_name: str = "base", overrides: Sequence[str] = (), config_dir: str | Path | None = None
) -> dict[str, Any]:
    """The tree that Hydra composes, interpolations resolved; keys and types are not checked yet.

    A config in `config_dir` may build on those of the repository (`defaults: [base, _self_]`).
    """
    # Hydra takes a quarter of a second to import; `import ragen.config` stays quick without it.
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    directory = Path(config_dir).resolve() if config_dir else CONFIG_DIR
    name = find_config(config_name, directory)
    check_syntax(overrides)
    # Searched after `directory`, so that a private config finds base and envs.
    search_path = [f"hydra.searchpath=[file://{CONFIG_DIR}]"] if directory != CONFIG_DIR else []
    words = [f"+{word}" if word.startswith(f"{OLD_FILTER_VALUE}=") else word for word in overrides]

    outer_hydra = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(directory), version_base="1.3"):
            tree = hydra_compose(name, overrides=[*words, *search_path])
        return _settled(OmegaConf.to_container(tree, resolve=True, throw_on_missing=True))
    except Exception as error:  # Hydra, OmegaConf and YAML raise ValueError, TypeError and more of their own
        if overrides:
            known = compose(name, (), config_dir)  # an error in the files themselves surfaces here
            for override in overrides:
                explain_unknown_override(override, known)
        raise ConfigError(f"Config {name} does not compose: {cause_in_yaml(error)}") from error
    finally:
        GlobalHydra.instance().hydra = outer_hydra


def _settled(tree: Any) -> dict[str, Any]:
    """Old names and nulls that stand for a number become what they mean."""
    *above, old_name = OLD_FILTER_VALUE.split(".")
    seed, rollout = _section(tree, "seed"), _section(tree, *above)
    if seed.get("val", VAL_SEED) is None:
        seed["val"] = VAL_SEED
    old = rollout.pop(old_name, None)
    if old is not None and rollout.get("rollout_filter_value") in (None, 1):
        rollout["rollout_filter_value"] = old
    return tree


def _section(tree: Any, *names: str) -> dict[str, Any]:
    """What stands below some keys; nothing where that is no mapping, which is refused later."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def cause_in_yaml(error: Exception) -> str:
    """What a reader of YAML said, without its pictures of the file."""
    if isinstance(error, RecursionError):
        return "a file includes itself, or a key refers to itself. Look at the defaults and at ${...}."
    return shorten(" ".join(str(error).split()), 400) or type(error).__name__


def find_config(config_name: str, directory: Path) -> str:
    """The name without its suffix; an unknown one is an error that lists those there are."""
    name = config_name.removesuffix(".yaml")
    if not directory.is_dir():
        raise ConfigError(f"Config folder {directory} does not exist. Give another one with --config-dir.")
    if not any((folder / f"{name}.yaml").is_file() for folder in (directory, CONFIG_DIR)):
        names = config_names(directory)
        raise ConfigError(
            f"There is no config {name!r} in {directory}.{did_you_mean(name, names)} Available: {', '.join(names)}."
        )
    return name


def config_names(directory: Path = CONFIG_DIR) -> list[str]:
    return sorted(file.stem for file in directory.glob("*.yaml") if file.stem != TAG_TABLE and file.is_file())


def check_syntax(overrides: Sequence[str]) -> None:
    """Every override is `key=value` with one value; Hydra's own messages speak of grammar tokens."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    for text in overrides:
        key, equals, value = text.partition("=")
        if not (equals or text.startswith("~")) or not key.strip("+~ "):
            way = f"--config-name {text}" if text in config_names() else "key=value, for example trainer.test_freq=5"
            raise ConfigError(f"{text!r} is not an override. Write {way}.")
        quoted = f"""{shorten(key)}="'{shorten(value)}'\""""
        try:
            override = parser.parse_override(text)
        except Exception as error:  # a parser's own errors, ValueError and RecursionError
            raise ConfigError(
                f"{shorten(key)}: the value {shorten(repr(value))} cannot be read. "
                f"Quote special characters, once for the shell and once for the config: {quoted}"
            ) from error
        if key.lstrip("+~ ").startswith(("hydra.", "hydra/")):
            raise ConfigError(
                f"{shorten(text)}: settings of Hydra itself have no effect here. Leave it out; the folder of a run is "
                "trainer.default_local_dir, another folder of configs is --config-dir."
            )
        if override.is_sweep_override():
            raise ConfigError(
                f"{key}: the value {value!r} holds a comma. A text is written {quoted}, a list {key}=[{value}]"
            )


def _filled(data: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """{"a": {"b": 1}}, {"a": {"b": 2, "c": 3}} -> {"a": {"b": 1, "c": 3}}; tables of environments stay as they are."""
    filled = dict(data)
    for key, value in base.items():
        if key not in data:
            filled[key] = value
        elif key != "custom_envs" and isinstance(value, Mapping) and isinstance(data[key], Mapping):
            filled[key] = _filled(data[key], value)
    return filled


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, (list, tuple)) else data


class OverridesArgumentParser(argparse.ArgumentParser):
    """Lets options stand before, between and after the overrides, as Hydra does."""

    appendix: Callable[[], str] | None = None
    """Written below the help, and computed only then."""

    def format_help(self) -> str:
        return super().format_help() + (f"\n{self.appendix()}\n" if self.appendix else "")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        return self.parse_intermixed_args(args, namespace)


def argument_parser(description: str, *, default_config_name: str = "base") -> OverridesArgumentParser:
    """The options every command shares; a command adds its own and calls `config_from_args` on the result."""
    parser = OverridesArgumentParser(
        description=description,
        epilog="Keys and their meaning: ragen config --config-name NAME. Configs: " + ", ".join(config_names()) + ".",
    )
    parser.add_argument(
        "--config-name", default=default_config_name, metavar="NAME", help="YAML file to start from (%(default)s)"
    )
    parser.add_argument("--config-dir", default=None, metavar="DIR", help=f"folder of that file ({CONFIG_DIR})")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="values to change, for example trainer.test_freq=5"
    )
    return parser


def config_from_args(args: argparse.Namespace) -> Config:
    """The configuration that a command line of `argument_parser` asks for."""
    return load_config(args.config_name, args.overrides, args.config_dir)
