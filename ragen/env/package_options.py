"""Options that an adapter hands on to a class of its package: names and plain types, checked against that class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from ragen.config.strict import build_value, unknown_key
from ragen.errors import ConfigError

PLAIN = {int, float, bool, str, type(None)}


def check_options(
    options: Mapping[str, Any], taker: Callable[..., Any], key: str, *, own: Collection[str] = ()
) -> None:
    """Refuse what `taker` has no argument for, and a value that is not of its plain type; `key` holds the options.
    Arguments that are the adapter's own are no options.

    def taker(min_terms: int = 2): ...
    {"min_term": 2} -> "key.min_term: unknown key. Did you mean key.min_terms? ..."
    {"min_terms": "x"} -> "key.min_terms: expected an integer, got 'x' (str). ..."
    """
    parameters = inspect.signature(taker).parameters
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {name: p for name, p in parameters.items() if p.kind in kinds and name not in own}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in options.items():
        if name not in known and not takes_any:
            raise ConfigError(unknown_key(name, known, key))
        # A default counts for more than the annotation: there are fractions that are called int.
        if name in known and is_plain(known[name].annotation) and type(value) is not type(known[name].default):
            build_value(known[name].annotation, value, f"{key}.{name}")


def is_plain(annotation: Any) -> bool:
    """int -> True, int | None -> True, list[str] -> False: what a package writes there is not always meant."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return {*get_args(annotation)} <= PLAIN if is_union else annotation in PLAIN
