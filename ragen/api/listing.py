"""What there is to choose from, and where it comes from: the tables behind `ragen list`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any, get_args

from ragen.config.extensions import CONTRACTS, Kind, entry_points, load
from ragen.engine.registry import ENGINES
from ragen.errors import RagenError
from ragen.text import printable

BUILT_IN = "built in"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Something that a configuration may name."""

    name: str
    sentence: str
    """What it is, by its own docstring."""
    origin: str
    """`built in`, or the package whose entry point it is."""


def list_parts(what: str) -> list[Part]:
    """The parts of a kind: those built in, then those of installed packages."""
    parts = [Part(name=name, sentence=sentence, origin=BUILT_IN) for name, sentence in SOURCES[what]()]
    if what in get_args(Kind):
        known = {part.name for part in parts}
        parts += [_of_package(what, point, known) for point in entry_points(what).values()]  # type: ignore[arg-type]
    return parts


def to_text(what: str) -> str:
    """The parts of a kind as lines, and how one of one's own is named."""
    parts = list_parts(what)
    width = max(len(part.name) for part in parts)
    lines = [f"{KEYS[what]} takes:", *(f"  {p.name:<{width}}  {p.sentence} [{p.origin}]" for p in parts)]
    if contract := CONTRACTS.get(what):  # type: ignore[call-overload]
        lines.append(f"or one of your own, written module:name: {contract} (docs/python.md).")
    return "\n".join(map(printable, lines))


def _of_package(kind: Kind, point: EntryPoint, built_in: set[str]) -> Part:
    package = point.dist.name if point.dist else "an unknown package"
    origin = f"entry point of {package} ({point.value})"
    if point.name in built_in:
        return Part(name=point.name, sentence="Hidden by what is built in under this name.", origin=origin)
    try:
        sentence = first_sentence(load(kind, point.name, f"entry point ragen.{kind}"))
    except RagenError as error:
        sentence = f"Cannot be used: {error}"
    return Part(name=point.name, sentence=sentence, origin=origin)


def first_sentence(part: Any) -> str:
    """The first line of a docstring; empty where there is none of its own."""
    text = inspect.cleandoc(getattr(part, "__doc__", None) or "")
    return text.splitlines()[0] if text else ""


def _table(module: str, name: str) -> Callable[[], Iterator[tuple[str, str]]]:
    """The functions of a table, by their docstrings; the module is imported when the table is asked for."""

    def read() -> Iterator[tuple[str, str]]:
        table: Mapping[str, Any] = getattr(import_module(module), name)
        for key, part in table.items():
            yield key, first_sentence(part)

    return read


def _envs() -> Iterator[tuple[str, str]]:
    from ragen.env.registry import REGISTRY, env_class

    for name in REGISTRY:
        try:
            yield name, first_sentence(env_class(name))
        except (ImportError, RagenError) as error:
            yield name, f"Cannot be used here: {error}"


def _estimators() -> Iterator[tuple[str, str]]:
    from ragen.algorithms.advantage import ESTIMATORS as FUNCTIONS
    from ragen.config.estimators import ESTIMATORS

    for name, declared in ESTIMATORS.items():
        needs = f" Needs {' and '.join(sorted(declared.needs))}." if declared.needs else ""
        yield name, first_sentence(FUNCTIONS[name]) + needs


def _engines() -> Iterator[tuple[str, str]]:
    for name, engine in ENGINES.items():
        needs = f" Needs the package {engine.package}." if engine.package else ""
        yield name, engine.sentence + needs


KEYS = {
    "envs": "custom_envs.<tag>.env_type",
    "estimators": "algorithm.adv_estimator",
    "filters": "actor_rollout_ref.rollout.rollout_filter_strategy",
    "losses": "actor_rollout_ref.actor.policy_loss",
    "engines": "actor_rollout_ref.rollout.name",
    "trackers": "trainer.logger",
}
"""Word of `ragen list` -> the key that takes such a name."""

SOURCES: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "envs": _envs,
    "estimators": _estimators,
    "filters": _table("ragen.algorithms.filter_strategies", "STRATEGIES"),
    "losses": _table("ragen.algorithms.losses", "POLICY_LOSSES"),
    "engines": _engines,
    "trackers": _table("ragen.tracking.tracker", "TRACKERS"),
}
"""Word of `ragen list` -> name and sentence of what is built in."""
