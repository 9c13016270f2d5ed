"""A secret kept out of messages, in whatever form a server quotes it.

Tested in tests/engine/test_api_engine.py.
"""

from __future__ import annotations

import base64
import html
import json
from itertools import groupby
from operator import itemgetter
from urllib.parse import quote, quote_plus

MIN_LENGTH = 4
"""Shorter keys are no secrets, and would be found in every text."""
MIN_PART = 8
"""Characters of a key in a row that count as a part of it; servers quote keys cut short."""


class Secret:
    """An API key that goes into a header and into no message."""

    def __init__(self, key: str) -> None:
        self.key = key
        forms = _forms(key) if len(key) >= MIN_LENGTH else {}
        self._forms = {form.lower(): min(MIN_PART * width, len(form)) for form, width in forms.items()}
        """Form -> characters of it in a row that are masked."""

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
        for form, size in self._forms.items():
            parts = {form[start : start + size] for start in range(len(form) - size + 1)}
            for start in range(len(lowered) - size + 1):
                if lowered[start : start + size] in parts:
                    is_secret[start : start + size] = b"\x01" * size
        runs = groupby(zip(is_secret, text, strict=True), key=itemgetter(0))
        return "".join("***" if hidden else "".join(char for _, char in run) for hidden, run in runs)


def _forms(key: str) -> dict[str, int]:
    """The key as it is, and as URLs, JSON, HTML, hex dumps and Basic authentication write it -> width of a letter."""
    plain = [
        key,
        quote(key, safe=""),
        quote_plus(key),
        json.dumps(key)[1:-1],
        key.replace("/", r"\/"),
        html.escape(key),
    ]
    codes = [ord(char) for char in key]
    forms = dict.fromkeys(plain + _base64_forms(key.encode()), 1)
    forms[key.encode().hex()] = 2
    forms["".join(f"\\u{code:04x}" for code in codes)] = 6
    forms["".join(f"&#{code};" for code in codes)] = 5
    forms["".join(f"&#x{code:x};" for code in codes)] = 6
    return forms


def _base64_forms(key: bytes) -> list[str]:
    """The key in Base64 behind a text of any length (Basic authentication sends user:key): three ways to begin."""
    begins = ((0, 0), (1, 2), (2, 3))  # bytes before the key, and letters that hold some of them
    forms = [base64.b64encode(bytes(before) + key).decode()[mixed:].rstrip("=") for before, mixed in begins]
    return [form for form in forms if len(form) >= MIN_LENGTH]
