"""Answers as JSON that every browser reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(content: Any) -> bytes:
    """No NaN, and escapes instead of what UTF-8 cannot hold (lone surrogates)."""
    try:
        text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except ValueError:  # seldom: so only then every number is looked at
        text = json.dumps(finite(content), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode()


def finite(content: Any) -> Any:
    """NaN and infinity become null: [1.0, nan] -> [1.0, None]"""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    return [finite(value) for value in content] if isinstance(content, list | tuple) else content
