"""Numbers and times in few characters; tables for a pipe."""

import pytest

from ragen.tracking.console import compact, duration, print_table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 / 3, "0.333333"),
        (-0.0001, "-0.0001"),
        (1e-9, "1e-09"),
        (7, "7"),
        (123456.789, "123456.79"),
        (1234567.0, "1234567"),
        (100000, "100000"),
        (1e20, "1e+20"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers_are_short_and_can_be_read_back(value, text):
    assert compact(value) == text
    assert float(text) == pytest.approx(value, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")])
def test_durations_are_in_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_a_piped_table_has_no_blanks_at_the_end_of_its_lines_and_no_blank_lines(capsys):
    print_table("two", ["name", "number"], [["a", "1"], ["long name", ""]])
    lines = capsys.readouterr().out.split("\n")
    assert lines[:2] == ["two", " name       number"]
    assert lines[3:] == [" a               1", " long name", ""]


def test_markup_in_a_piped_table_is_read_once(capsys):
    print_table("t", ["name"], [[r"\[bold] is no mark"]])
    assert "[bold] is no mark" in capsys.readouterr().out
