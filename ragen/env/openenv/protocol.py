"""OpenEnv's messages: JSON texts over a WebSocket, one answer to each question.

{"type": "reset", "data": {"seed": 7}}       -> {"type": "observation", "data": {"observation": {...}, ...}}
{"type": "step", "data": {"text": "Up"}}     -> {"type": "observation", "data": {..., "reward": 1, "done": true}}
{"type": "state"}                            -> {"type": "state", "data": {"episode_id": ..., "step_count": 1}}
{"type": "close"}                            the session ends
anything else                                -> {"type": "error", "data": {"message": ..., "code": ...}}
"""

from __future__ import annotations

import json
from typing import Any, Literal

from ragen.text import safe

MAX_MESSAGE = 8 * 2**20
"""Bytes of a message; the longest observation that we take, a million characters, fits in."""
MAX_DEPTH = 32
"""Containers within containers."""

Code = Literal["INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR", "CAPACITY_REACHED"]


class NotAMessage(ValueError):
    """A text that is no message; it says why."""


def write(kind: str, data: dict[str, Any]) -> str:
    # Half characters cannot be sent; ASCII escapes would carry them to readers that refuse them.
    text = json.dumps({"type": kind, "data": data}, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode()


def write_error(message: str, code: Code) -> str:
    return write("error", {"message": safe(message), "code": code})


def read(text: str | bytes) -> tuple[str, dict[str, Any]]:
    """Type and data of a message."""
    if len(text) > MAX_MESSAGE:
        raise NotAMessage(f"it has {len(text):,} characters, at most {MAX_MESSAGE:,} are read")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAMessage(f"it is not JSON ({safe(str(error), 100)})") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise NotAMessage("it has no type")
    data = message.get("data", {})
    if not isinstance(data, dict):
        raise NotAMessage("its data is not an object")
    if depth(data) > MAX_DEPTH:
        raise NotAMessage(f"its data is more than {MAX_DEPTH} levels deep")
    return message["type"], data


def depth(value: Any) -> int:
    """How deep containers are nested: {"a": [1]} -> 2. Stops counting soon after MAX_DEPTH."""
    levels, layer = 0, [value]
    while layer and levels <= MAX_DEPTH + 1:
        layer = [
            entry
            for part in layer
            if isinstance(part, dict | list)
            for entry in (part.values() if isinstance(part, dict) else part)
        ]
        levels += 1
    return levels - 1
