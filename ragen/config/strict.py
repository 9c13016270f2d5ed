"""Builds dataclasses from plain data without guessing: an unknown key or a wrong type is an error."""

import dataclasses
import difflib
import math
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ragen.config.bounds import Spelling
from ragen.errors import ConfigError

T = TypeVar("T")

LARGEST_INT = 10**15
LARGEST_FLOAT = 1e9
"""No number of a configuration is larger: beyond are slips of the keyboard, which would end in memory errors or NaN."""
LONGEST_VALUE = 120
"""Characters of a wrong value that a message shows."""

ADD_IT = "Add it to the YAML file or the command line."
BUILD_ON = "Build on a whole configuration: the file begins with defaults: [base, _self_]."

SCALAR_NAMES = {int: "an integer", float: "a number", bool: "True or False", str: "a text", type(None): "null"}


def build_dataclass(cls: type[T], data: Any, path: str = "") -> T:
    """An instance of `cls` from a mapping; `path` is the dotted name of the mapping in messages.

    An int is taken where a float is expected; nothing else is converted. Numbers are finite and of a sane size.
    Keys with a default may be left out.
    A ValueError of the class's own `__post_init__` becomes a ConfigError that names the path.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or cls.__name__}: expected a mapping of keys, got {show_value(data)}.")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise ConfigError(unknown_key(str(key), fields, path))
    hints = get_type_hints(cls, include_extras=True)
    missing = [name for name, field in fields.items() if name not in data and not has_default(field)]
    if missing:
        wanted = ", ".join(f"{join(path, name)} ({type_name(hints[name])})" for name in missing)
        raise ConfigError(f"{path or cls.__name__}: missing {shorten(wanted, 300)}. {ADD_IT if path else BUILD_ON}")
    values = {name: build_value(hints[name], data[name], join(path, name)) for name in fields if name in data}
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{path or cls.__name__}: {error}") from error


def build_value(annotation: Any, value: Any, path: str) -> Any:
    """`value` checked against one type annotation; containers and dataclasses are built anew."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin is Annotated:
        for note in args[1:]:
            value = note.read(value) if isinstance(note, Spelling) else value
        built = build_value(args[0], value, path)
        for note in args[1:]:
            if hasattr(note, "check"):  # bounds.Bound, extensions.Choice
                note.check(built, path)
        return built
    if origin is Literal:
        return build_literal(args, value, path)
    if origin in (Union, types.UnionType):
        return build_union(annotation, args, value, path)
    if dataclasses.is_dataclass(annotation):
        return build_dataclass(annotation, value, path)  # type: ignore[arg-type]
    container = origin or annotation
    if container in (list, tuple):
        return build_sequence(annotation, container, args, value, path)
    if container in (dict, Mapping):
        return build_mapping(annotation, args, value, path)
    return build_scalar(annotation, value, path)


def build_scalar(annotation: type, value: Any, path: str) -> Any:
    # bool is a subclass of int, so the exact type decides.
    if type(value) is not annotation and not (annotation is float and type(value) is int):
        raise wrong_type(annotation, value, path)
    if annotation in (int, float):
        check_size(annotation, value, path)
    return float(value) if annotation is float else value


def check_size(annotation: type, value: float, path: str) -> None:
    """Refuse NaN, infinity and numbers that no key means."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path} is {value}. Set it to a finite number.")
    largest = LARGEST_INT if annotation is int else LARGEST_FLOAT
    if abs(value) > largest:
        # Integers of thousands of digits are not written out: Python refuses to.
        shown = f"about 10^{value.bit_length() * 0.30103:.0f}" if isinstance(value, int) else f"{value:g}"
        raise ConfigError(f"{path} is {shown}, and no key takes more than {largest:g}. Set a smaller number.")


def build_literal(choices: tuple, value: Any, path: str) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    listed = ", ".join(map(str, choices))
    raise ConfigError(
        f"{path}: {show_value(value)} is not a choice.{did_you_mean(value, choices)} Choose from: {listed}."
    )


def build_union(annotation: Any, members: tuple, value: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        return build_value(members[0], value, path)
    for member in members:
        try:
            return build_value(member, value, path)
        except ConfigError:
            continue
    raise wrong_type(annotation, value, path)


def build_sequence(annotation: Any, container: type, args: tuple, value: Any, path: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise wrong_type(annotation, value, path)
    is_fixed = container is tuple and bool(args) and args[-1] is not Ellipsis
    if is_fixed and len(value) != len(args):
        raise ConfigError(
            f"{path}: expected {len(args)} entries, got {len(value)}: {shorten(repr(list(value)))}. Give {len(args)}."
        )
    items = args if is_fixed else (args[0] if args else Any,) * len(value)
    return container(build_value(item, entry, f"{path}[{i}]") for i, (item, entry) in enumerate(zip(items, value)))


def build_mapping(annotation: Any, args: tuple, value: Any, path: str) -> dict:
    if not isinstance(value, Mapping):
        raise wrong_type(annotation, value, path)
    key_type, value_type = args or (Any, Any)
    return {
        build_value(key_type, key, f"{path}: key {key}"): build_value(value_type, entry, join(path, str(key)))
        for key, entry in value.items()
    }


def wrong_type(annotation: Any, value: Any, path: str) -> ConfigError:
    wanted = type_name(annotation)
    remedy = f"Set {path} to {wanted}."
    if annotation is str and isinstance(value, (int, float)):
        remedy = f"""Quote it to keep it a text: {path}="'{value}'"."""
    elif get_args(annotation)[1:] == (Ellipsis,) and isinstance(value, (str, int, float)):
        remedy = f"Write a list: {path}=[{shorten(str(value))}]."
    elif annotation in (int, float) and isinstance(value, str):
        remedy = f"Write {path} as a number, without quotes or units."
    return ConfigError(f"{path}: expected {wanted}, got {show_value(value)}. {remedy}")


def unknown_key(key: str, known: Iterable[str], path: str = "") -> str:
    """The message for a key that does not exist, with the nearest one that does."""
    known = list(known)
    if not known:
        return f"{join(path, key)}: unknown key. {path or 'This mapping'} takes no options. Leave it out."
    return f"{join(path, key)}: unknown key.{did_you_mean(key, known, path)} Keys here: {', '.join(known)}."


def did_you_mean(name: Any, candidates: Iterable[Any], path: str = "") -> str:
    match = nearest(str(name), map(str, candidates))
    return f" Did you mean {join(path, match)}?" if match else ""


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `name`, without regard to case; None when nothing is close."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def type_name(annotation: Any) -> str:
    """A type in words: `int | None` -> "an integer or null"."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(args[0])
    if origin is Literal:
        return ("one of " if len(args) > 1 else "") + ", ".join(map(str, args))
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(arg) for arg in args)
    container = origin or annotation
    if container in (list, tuple):
        entries = [type_name(arg) for arg in args if arg is not Ellipsis]
        return f"a list of ({', '.join(entries)})" if entries else "a list"
    if container in (dict, Mapping) or dataclasses.is_dataclass(annotation):
        return "a mapping of keys"
    return SCALAR_NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def show_value(value: Any) -> str:
    return "null" if value is None else f"{shorten(repr(value))} ({type(value).__name__})"


def shorten(text: str, most: int = LONGEST_VALUE) -> str:
    return text if len(text) <= most else text[:most] + " ..."


def has_default(field: dataclasses.Field) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
