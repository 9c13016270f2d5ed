"""A secret kept out of messages, in whatever form a server quotes it."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

MIN_LENGTH = 4
"""Shorter keys are no secrets, and would be found in every text."""
MIN_PART = 8
"""Characters of a key in a row that count as a part of it; servers quote keys cut short."""


class Secret:
    """An API key that goes into a header and into no message."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._forms = [form.lower() for form in _forms(key)] if len(key) >= MIN_LENGTH else []

    def __repr__(self) -> str:
        return "Secret(***)"

    def masked(self, text: str) -> str:
        """The text with *** for the key and for long parts of it, in capital or small letters, quoted or encoded.

        key "sk-abcdefghij": "bad key SK-ABCDEFGH..." -> "bad key ***..."
        """
        lowered = text.lower()
        if len(lowered) != len(text):  # a few letters change their length
            text = lowered
        is_secret = bytearray(len(text))
        for form in self._forms:
            size = min(MIN_PART, len(form))
            parts = {form[start : start + size] for start in range(len(form) - size + 1)}
            for start in range(len(lowered) - size + 1):
                if lowered[start : start + size] in parts:
                    is_secret[start : start + size] = b"\x01" * size
        pieces = []
        for index, char in enumerate(text):
            if not is_secret[index]:
                pieces.append(char)
            elif index == 0 or not is_secret[index - 1]:
                pieces.append("***")
        return "".join(pieces)


def _forms(key: str) -> set[str]:
    """The key as it is, and as URLs, JSON, HTML and Basic authentication write it."""
    encoded = base64.b64encode(key.encode()).decode().rstrip("=")
    return {
        key,
        quote(key, safe=""),
        quote_plus(key),
        json.dumps(key)[1:-1],
        key.replace("/", r"\/"),
        html.escape(key),
        encoded,
    }
