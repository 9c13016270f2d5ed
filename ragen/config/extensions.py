"""Parts of one's own: what a configuration may name beside what is built in, without a change of this package.

A name is that of something built in, a path `module:name` (algorithm.adv_estimator=my_pkg.adv:loo), or the name of an
entry point that an installed package declares:

    [project.entry-points."ragen.estimators"]
    loo = "my_pkg.adv:loo"

Modules are looked for as Python does, and then in the working directory. A configuration that is only read imports
nothing of it; whoever starts a run loads and checks its parts first (ragen/trainer/starting/own_parts.py).
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from importlib.metadata import entry_points as find_entry_points
from typing import Any, Literal

from ragen.config.strict import did_you_mean, show_value
from ragen.errors import ConfigError

Kind = Literal["envs", "estimators", "filters", "losses", "rewards", "metrics", "trackers"]

CONTRACTS: dict[Kind, str] = {
    "envs": "a subclass of ragen.TextEnv or ragen.Env",
    "estimators": "a function of fields of AdvantageInputs that returns (advantages, returns)",
    "filters": "a function (group_scores, settings, *, num_groups) that returns the indices of the kept groups",
    "losses": "a function of PolicyInputs that returns (loss of each token, metrics of each token)",
    "rewards": "a function of a finished Episode that returns its reward, a number",
    "metrics": "a function of a list of Episodes that returns {name: number}",
    "trackers": "a class that is made with RunFacts and has log, log_table and close",
}
"""Kind -> what a part of one's own must be. The entry points of a kind are in the group `ragen.<kind>`."""

PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Choice:
    """A field's condition: the name of something built in, or of a part of one's own."""

    kind: Kind
    built_in: tuple[str, ...] = ()

    def check(self, value: Any, path: str) -> None:
        if value is not None and not (value in self.built_in or is_path(value) or value in entry_points(self.kind)):
            raise ConfigError(unknown_name(self.kind, value, self.built_in, path))


def is_path(name: str) -> bool:
    """my_pkg.adv:loo -> True, grpo -> False"""
    return PATH.fullmatch(name) is not None


def entry_points(kind: Kind) -> dict[str, EntryPoint]:
    """Those of installed packages, by name; of several with one name the first."""
    found: dict[str, EntryPoint] = {}
    for point in find_entry_points(group=f"ragen.{kind}"):
        found.setdefault(point.name, point)
    return found


def unknown_name(kind: Kind, name: Any, built_in: Iterable[str], key: str) -> str:
    """The message for a name that nobody knows."""
    known = [*built_in, *entry_points(kind)]
    listed = f" Choose from: {', '.join(known)}." if known else ""
    return (
        f"{key}: {show_value(name)} is not a choice.{did_you_mean(name, known)}{listed} "
        f"One of your own is written module:name and is {CONTRACTS[kind]}."
    )


def load(kind: Kind, name: str, key: str) -> Any:
    """The part of one's own behind a path or the name of an entry point; errors name the key and the way out."""
    path = name
    if not is_path(name):
        points = entry_points(kind)
        if name not in points:
            raise ConfigError(unknown_name(kind, name, (), key))
        path = points[name].value
    module, _, attribute = path.partition(":")
    found: Any = _import(module, f"{key}={name}")
    for word in attribute.split("."):
        if not hasattr(found, word):
            hint = did_you_mean(word, vars(found) if hasattr(found, "__dict__") else ())
            raise ConfigError(f"{key}={name}: {module} has no {attribute}.{hint} It must be {CONTRACTS[kind]}.")
        found = getattr(found, word)
    if not callable(found):
        raise ConfigError(f"{key}={name} is {show_value(found)}, which cannot be called. It must be {CONTRACTS[kind]}.")
    return found


def refuse(kind: Kind, name: str, key: str, why: str) -> ConfigError:
    """The error for a part that is there but not what its kind must be."""
    return ConfigError(f"{key}={name}: {why} It must be {CONTRACTS[kind]}; docs/python.md shows one.")


def check_takes_one(kind: Kind, name: str, key: str) -> None:
    """Refuse a part that cannot be called with one argument."""
    try:
        inspect.signature(load(kind, name, key)).bind(None)
    except TypeError as error:
        raise refuse(kind, name, key, f"it cannot be called with one argument ({error}).") from error
    except ValueError:  # a type of another language, which tells no signature
        pass


def _import(module: str, where: str) -> Any:
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    if folder not in sys.path and "" not in sys.path:  # a console script searches its own folder instead
        sys.path.append(folder)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{where}: there is no module {error.name}, neither on Python's path nor in {folder}. Install its "
                "package, or start the command in the folder that holds it."
            ) from error
        raise ConfigError(f"{where}: importing {module} failed: {error}. Install what it needs.") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{where}: importing {module} failed with {type(error).__name__}: {error}. Repair it, and try it with: "
            f"python -c 'import {module}'"
        ) from error
