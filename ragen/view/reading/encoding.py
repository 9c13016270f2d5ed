"""Answers as JSON that every browser reads."""

from __future__ import annotations

import json
from typing import Any

from ragen.files import finite


def to_json(content: Any) -> bytes:
    """No NaN, and escapes instead of what UTF-8 cannot hold (lone surrogates)."""
    try:
        text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except ValueError:  # seldom: so only then every number is looked at
        text = json.dumps(finite(content), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode()
