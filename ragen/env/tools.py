"""Tools that an environment offers: their schemas, and the calls that a model writes, read strictly.

read_call('search(query="Oslo")', tools) -> ToolCall("search", {"query": "Oslo"})
read_call('<tool_call>{"name": "search", "arguments": {"query": "Oslo"}}</tool_call>', tools) -> the same

A function call is read into a tree by Python's parser and holds names and literals alone; nothing is evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOOL_CALL = ("<tool_call>", "</tool_call>")
MAX_CALL = 4_000
"""Characters of a call."""
MAX_DEPTH = 8
"""Lists and objects within one another, in a schema and in an argument."""
MAX_TOOLS = 32
MAX_DESCRIPTION = 4_000
"""Characters of what a tool says of itself, schema and all."""

SYNTAX, UNKNOWN_TOOL, ARGUMENTS = "syntax", "unknown_tool", "arguments"
REFUSED, TIMEOUT, EXCEPTION = "refused", "timeout", "exception"
PROBLEMS = (SYNTAX, UNKNOWN_TOOL, ARGUMENTS, REFUSED, TIMEOUT, EXCEPTION)
"""Why a call brought no result."""
UNUSABLE = (SYNTAX, UNKNOWN_TOOL, ARGUMENTS)
"""Of these, the ones that the reply itself is to blame for, whatever the tool does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema of an object: its properties are the arguments. Arguments it does not name are refused."""

    def to_json(self) -> dict[str, Any]:
        """The form in which chat templates take tools."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def one_text(name: str, **schema: Any) -> dict[str, Any]:
    """The parameters of a tool that takes one text."""
    return {"type": "object", "properties": {name: {"type": "string", **schema}}, "required": [name]}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool and its arguments."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """As a function call: search(query="Oslo")."""
        return f"{self.name}({', '.join(f'{key}={literal(value)}' for key, value in self.arguments.items())})"

    @property
    def block(self) -> str:
        """In the form of Hermes and Qwen, with its tags."""
        fields = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"\n{fields}\n".join(TOOL_CALL)


class CallError(ValueError):
    """A call that cannot be made; the message is written for whoever wrote the call."""

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def literal(value: Any) -> str:
    """A value of JSON as Python writes it: {"a": [true, "x"]} -> '{"a": [True, "x"]}'."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # its escapes mean the same in Python
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(part)}' for key, part in value.items())}}}"
    return repr(value)


# --- reading calls --------------------------------------------------------------------------------------------------


def read_call(text: str, tools: Sequence[Tool]) -> ToolCall | None:
    """The call that a text makes, checked against the tools; None where it makes none and is an answer.

    A text with the tags of a tool call is one. So is a function call, where its name is that of a tool or all its
    arguments are named, as in serch(query="Oslo").
    """
    text = text.strip()
    by_name = {tool.name: tool for tool in tools}
    call = _read_block(text) if text.startswith(TOOL_CALL[0]) else _read_function(text, by_name)
    if call is None:
        return None
    if call.name not in by_name:
        names = ", ".join(by_name)
        raise CallError(UNKNOWN_TOOL, f"there is no tool {_quoted(call.name)}, the tools are: {names}")
    if wrong := violation(call.arguments, by_name[call.name].parameters):
        raise CallError(ARGUMENTS, f"{call.name}: {wrong}")
    return call


def _read_block(text: str) -> ToolCall:
    """A call as JSON between its tags."""
    if not text.endswith(TOOL_CALL[1]):
        raise CallError(SYNTAX, f"the call does not end with {TOOL_CALL[1]}")
    _check_length(text)
    body = text.removeprefix(TOOL_CALL[0]).removesuffix(TOOL_CALL[1])
    try:
        fields = json.loads(body, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except CallError:
        raise
    except (ValueError, RecursionError) as error:  # what is not JSON, or is nested without end
        where = f", column {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise CallError(SYNTAX, f"the call is not valid JSON{where}") from error
    if not isinstance(fields, dict) or set(fields) != {"name", "arguments"}:
        raise CallError(SYNTAX, 'a call has the form {"name": ..., "arguments": {...}} and no other fields')
    if not isinstance(fields["name"], str) or not isinstance(fields["arguments"], dict):
        raise CallError(SYNTAX, "name must be a text and arguments an object")
    return ToolCall(fields["name"], fields["arguments"])


_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")


def _read_function(text: str, known: Mapping[str, Tool]) -> ToolCall | None:
    """A call in Python's form; None where the text is something else."""
    found = _FUNCTION.match(text)
    if not (found and text.endswith(")")):
        return None
    is_known = found[1] in known
    try:
        tree = ast.parse(text, mode="eval").body if len(text) <= MAX_CALL else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        if not is_known:
            return None
        _check_length(text)
        raise CallError(SYNTAX, f"the call cannot be read; write {found[1]}(argument=value)")
    if tree.args or not all(entry.arg for entry in tree.keywords):
        if not is_known:
            return None
        raise CallError(SYNTAX, f"arguments are given by name: {found[1]}(argument=value)")
    names = [str(entry.arg) for entry in tree.keywords]
    if len(set(names)) < len(names):
        raise CallError(SYNTAX, "an argument is given twice")
    values = [_literal_value(entry.value, MAX_DEPTH) for entry in tree.keywords]
    return ToolCall(tree.func.id, dict(zip(names, values, strict=True)))


def _literal_value(node: ast.expr, depth: int) -> Any:
    """The value of a literal of JSON's kinds."""
    if not depth:
        raise CallError(SYNTAX, "an argument is nested too deeply")
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (bool, int, float, str)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal_value(part, depth - 1) for part in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key and _literal_value(key, depth - 1) for key in node.keys]
        if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
            return dict(zip(keys, (_literal_value(part, depth - 1) for part in node.values), strict=True))
    raise CallError(SYNTAX, "arguments must be plain values: texts in quotes, numbers, True, False, None, lists")


def _check_length(text: str) -> None:
    if len(text) > MAX_CALL:
        raise CallError(SYNTAX, f"the call has {len(text):,} characters, at most {MAX_CALL:,} are read")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise CallError(SYNTAX, "a field of the call is given twice")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise CallError(SYNTAX, f"{name} is not a value of JSON")


def _quoted(text: str) -> str:
    return repr(text[:64])


# --- schemas --------------------------------------------------------------------------------------------------------

TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) is int or (type(value) is float and math.isfinite(value)),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", operator.ge, "at least {}"),
    "maximum": ("number", operator.le, "at most {}"),
    "minLength": ("string", operator.ge, "at least {} characters"),
    "maxLength": ("string", operator.le, "at most {} characters"),
    "minItems": ("array", operator.ge, "at least {} items"),
    "maxItems": ("array", operator.le, "at most {} items"),
}
"""Keyword -> type whose values it limits (numbers by themselves, others by their length), the test, how it is said."""
KEYWORDS = {"type", "description", "title", "enum", "items", "properties", "required", "additionalProperties", *LIMITS}
"""What of JSON Schema is understood; a schema with anything else is refused, so that no rule is passed over."""


def violation(value: Any, schema: Mapping[str, Any], name: str = "") -> str:
    """What is wrong with a value, in one sentence without a full stop; empty where the schema allows it.

    {"query": 3} against {"properties": {"query": {"type": "string"}}} -> "query must be a string, it is 3"
    """
    what = name or "the arguments"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        return f"{what} must be {_article(' or '.join(kinds))}, it is {_shown(value)}"
    if "enum" in schema and not any(type(value) is type(choice) and value == choice for choice in schema["enum"]):
        return f"{what} must be one of {', '.join(map(literal, schema['enum']))}, it is {_shown(value)}"
    for key, (kind, fits, wanted) in LIMITS.items():
        size = len(value) if isinstance(value, str | list) else value
        if key in schema and TYPES[kind](value) and not fits(size, schema[key]):
            return f"{what} must be {wanted.format(schema[key])}"
    if isinstance(value, list) and "items" in schema:
        parts = (violation(part, schema["items"], f"{what}[{index}]") for index, part in enumerate(value))
        return next(filter(None, parts), "")
    return _object_violation(value, schema, name) if isinstance(value, dict) else ""


def _object_violation(value: dict[str, Any], schema: Mapping[str, Any], name: str) -> str:
    properties = schema.get("properties", {})
    if missing := [key for key in schema.get("required", ()) if key not in value]:
        return f"{f'{name} lacks' if name else 'it lacks the argument'} {missing[0]}"
    unknown = [key for key in value if key not in properties]
    # Unlike JSON Schema's own rule: what a schema that lists names does not list is a slip of the model.
    is_listed = "properties" in schema or not name
    if unknown and is_listed and not schema.get("additionalProperties", False):
        known = ", ".join(properties) or "none"
        return f"{_quoted(unknown[0])} is not among the {'fields of ' + name if name else 'arguments'} ({known})"
    prefix = f"{name}." if name else ""
    parts = (violation(value[key], part, prefix + key) for key, part in properties.items() if key in value)
    return next(filter(None, parts), "")


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _shown(value: Any) -> str:
    text = literal(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def check_tool(tool: Any) -> Tool:
    """A declared tool; a ValueError says what is wrong with it."""
    if not isinstance(tool, Tool):
        raise ValueError("expected records of ragen.env.Tool")
    if not (isinstance(tool.name, str) and _is_name(tool.name)):
        raise ValueError("expected a name that could be one of Python's, of at most 64 characters")
    if not isinstance(tool.description, str) or not isinstance(tool.parameters, Mapping):
        raise ValueError("expected a text as description and a JSON schema as parameters")
    _check_schema(tool.parameters, MAX_DEPTH)
    if tool.parameters.get("type") != "object":
        raise ValueError('expected parameters of "type": "object"')
    if odd := [key for key in tool.parameters.get("properties", {}) if not _is_name(key)]:
        raise ValueError(f"expected names of arguments that could be Python's, got {_quoted(odd[0])}")
    try:
        size = len(json.dumps(tool.to_json(), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("expected a schema of plain JSON") from error
    if size > MAX_DESCRIPTION:
        raise ValueError(f"expected at most {MAX_DESCRIPTION:,} characters of JSON, it has {size:,}")
    return tool


def _is_name(text: str) -> bool:
    return text.isidentifier() and text.isascii() and len(text) <= 64 and not keyword.iskeyword(text)


def _check_schema(schema: Any, depth: int) -> None:
    if not isinstance(schema, Mapping) or not depth:
        raise ValueError("expected a JSON schema, nested not too deeply")
    if unknown := set(schema) - KEYWORDS:
        known = ", ".join(sorted(KEYWORDS))
        raise ValueError(f"expected keywords out of {known}; got {', '.join(sorted(map(str, unknown)))}")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if odd := [kind for kind in kinds if kind not in TYPES]:
        raise ValueError(f"expected types out of {', '.join(TYPES)}; got {odd[0]!r}")
    properties = schema.get("properties", {})
    if missing := set(schema.get("required", ())) - set(properties):
        raise ValueError(f"expected required arguments among the properties; got {', '.join(sorted(missing))}")
    for part in [*properties.values(), *([schema["items"]] if "items" in schema else [])]:
        _check_schema(part, depth - 1)
