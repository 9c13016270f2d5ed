"""`ragen config`: the resolved configuration, with the meaning of every key beside it."""

import dataclasses
import json
import re
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml

from ragen.config.extensions import Choice
from ragen.config.load import to_dict
from ragen.config.schema import Config

INDENT = "  "
COMMENT_COLUMN_LIMIT = 60  # a longer value pushes its own comment out, not those of its neighbours
LINE_LIMIT = 150

PLAIN_TEXT = re.compile(r"[A-Za-z_/][\w./+-]*")


def to_text(config: Config, *, as_json: bool) -> str:
    return json.dumps(to_dict(config), indent=2, ensure_ascii=False) if as_json else to_yaml(config)


def to_yaml(config: Config) -> str:
    """The configuration as a YAML file with one comment per key; `build_config` reads it back unchanged."""
    return "\n".join(section_lines(config, indent=""))


def section_lines(node: Any, indent: str, *, has_comments: bool = True) -> list[str]:
    """The lines of one dataclass: first its plain keys, their comments in one column, then its subsections."""
    leaves: list[tuple[str, str]] = []
    sections: list[str] = []
    for name, sentence in sentences(type(node)).items():
        value = getattr(node, name)
        if dataclasses.is_dataclass(value):
            sections += ["", f"{indent}{name}:  # {type(value).__doc__}"][1 if indent else 0 :]
            sections += section_lines(value, indent + INDENT)
        elif isinstance(value, dict) and all(map(dataclasses.is_dataclass, value.values())) and value:
            sections += ["", f"{indent}{name}:  # {sentence}"]
            for i, (key, entry) in enumerate(value.items()):
                # The entries of a table have the same keys: one of them explains all.
                sections += [f"{indent}{INDENT}{to_flow(key)}:"]
                sections += section_lines(entry, indent + 2 * INDENT, has_comments=i == 0)
        else:
            leaves.append((f"{indent}{name}: {to_flow(value)}", sentence))
    if not has_comments:
        return [text for text, _ in leaves] + sections
    return commented(leaves, indent) + sections


def commented(leaves: list[tuple[str, str]], indent: str) -> list[str]:
    """The comments behind the values, in one column; above the value where the line would be too long."""
    column = max((len(text) for text, _ in leaves if len(text) <= COMMENT_COLUMN_LIMIT), default=0)
    lines = []
    for text, sentence in leaves:
        line = f"{text:<{column}}  # {sentence}"
        lines += [line] if len(line) <= LINE_LIMIT else [f"{indent}# {sentence}", text]
    return lines


def sentences(cls: type) -> dict[str, str]:
    """Field name -> meaning and choices; empty for a subsection, which its class's docstring explains."""
    meanings = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        _, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        sentence = " ".join(note for note in notes if isinstance(note, str))
        listed = ", ".join(map(str, choices(hint)))
        meanings[name] = sentence + (f" Choices: {listed}." if listed else "")
    return meanings


def choices(annotation: Any) -> tuple:
    """The values of a Literal or a Choice, also of one inside a tuple; empty for other types."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        named = [(*note.built_in, "module:name") for note in notes if isinstance(note, Choice)]
        return named[0] if named else choices(inner)
    if get_origin(annotation) is tuple:
        return choices(get_args(annotation)[0])
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def to_flow(value: Any) -> str:
    """A value on one line of YAML, in a form that YAML 1.1 and OmegaConf read alike."""
    if isinstance(value, str):
        is_plain = PLAIN_TEXT.fullmatch(value) and yaml.safe_load(value) == value
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_flow(key)}: {to_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_flow, value)) + "]"
    return yaml.safe_dump(value).splitlines()[0]  # 1e-06 -> 1.0e-06, which every YAML reader takes for a number
