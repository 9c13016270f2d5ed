"""Text from outside (environments, servers, models), made fit to be stored and printed."""

from __future__ import annotations

MAX_ERROR = 2_000
"""Characters of a stored error text."""

_CONTROLS = [*range(0x00, 0x20), *range(0x7F, 0xA0)]
# Invisible marks that reorder or hide what follows them on a terminal.
_INVISIBLE = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF]
_ESCAPES = {code: rf"\x{code:02x}" if code < 0x100 else rf"\u{code:04x}" for code in (*_CONTROLS, *_INVISIBLE)}
_ESCAPES |= {code: rf"\u{code:04x}" for code in range(0xD800, 0xE000)}  # half a surrogate pair cannot be encoded
del _ESCAPES[ord("\n")], _ESCAPES[ord("\t")]


def printable(text: str) -> str:
    r"""The text without power over a terminal: control characters are written out, "\x1b[2J" -> r"\x1b[2J"."""
    return text.translate(_ESCAPES)


def shorten(text: str, limit: int = MAX_ERROR) -> str:
    """At most `limit` characters of a text, its head and its tail, and how much is missing between them.

    ("0123456789" * 10, 60) -> "0123456789... [80 of 100 characters left out] ...0123456789"
    """
    if len(text) <= limit:
        return text
    room = limit - len(_gap(len(text), len(text)))
    head = max(0, (room + 1) // 2)
    tail = max(0, room // 2)
    return text[:head] + _gap(len(text) - head - tail, len(text)) + text[len(text) - tail :]


def safe(text: str, limit: int = MAX_ERROR) -> str:
    """Printable and at most `limit` characters long, however long and wild the text is."""
    return shorten(printable(shorten(text, limit)), limit)


def _gap(num_missing: int, length: int) -> str:
    return f"... [{num_missing:,} of {length:,} characters left out] ..."
