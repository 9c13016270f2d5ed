"""Text from outside: printable, short, and without power over a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import RagenError, reporting_errors
from ragen.text import printable, safe, shorten

ESCAPES = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\x9b31m\r\x00\u202e\u2028\ud800"


def test_control_characters_are_written_out_and_lines_stay_lines():
    assert printable("a\tb\n\x1b[2J\x07é√") == "a\tb\n\\x1b[2J\\x07é√"
    assert all(char.isprintable() for char in printable(ESCAPES))
    printable(ESCAPES).encode()


@given(st.text(st.characters(), max_size=300), st.integers(60, 200))
def test_a_safe_text_is_short_and_can_be_written_to_any_file(text, limit):
    found = safe(text, limit)
    assert len(found) <= limit
    found.encode()
    assert not set(found) & {"\x1b", "\x07", "\r", "\x9b"}


def test_a_text_that_is_cut_keeps_both_ends_and_says_what_is_missing():
    assert shorten("0123456789" * 10, 60) == "0123456789... [80 of 100 characters left out] ...0123456789"
    assert shorten("short", 60) == "short"


@pytest.mark.parametrize("error", [RagenError(ESCAPES), FileNotFoundError(2, "No such file", ESCAPES)])
def test_an_error_is_reported_without_its_escapes(error, capsys):
    def fail() -> int:
        raise error

    assert reporting_errors(fail) == 1
    reported = capsys.readouterr().err
    assert reported.startswith("error: ") and all(char.isprintable() or char == "\n" for char in reported)
