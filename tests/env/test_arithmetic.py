"""Expressions of models have the value that arithmetic gives them, or a reason why they have none."""

import ast
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.env.arithmetic import Refused, numbers, parse, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        (" (3 + 4)\n* 5 ", 35),
        ("7 / 2", Fraction(7, 2)),
        ("1 / 3 * 3", 1),
        ("-3 + 10", 7),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("2 - 3 - 4", -5),
    ],
)
def test_values_are_exact(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an arithmetic expression"),
        ("1 +", "not an arithmetic expression"),
        ("1, 2", "more than numbers"),
        ("x + 1", "more than numbers"),
        ("1 = 1", "more than numbers"),
        ("1_000", "more than numbers"),
        ("2 ** 3", "operator that is not allowed"),
        ("7 % 2", "operator that is not allowed"),
        ("1 / (2 - 2)", "divides by zero"),
        ("9" * 300, "300 characters, at most 200"),
        ("9" * 190, "too large"),
        ("*".join(["9" * 37] * 5), "too large"),
        ("...", "operator that is not allowed"),
        ("(1)(2)", "operator that is not allowed"),
        ("\x00", "more than numbers"),
        ("\ud800", "more than numbers"),
        ("٣", "more than numbers"),
    ],
)
def test_what_has_no_value_has_a_reason(text, reason):
    with pytest.raises(Refused, match=reason):
        value(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789+-*/%(). ", max_size=40))
def test_any_text_is_worth_what_python_says_or_is_refused(text):
    try:
        found = value(text)
    except Refused:
        return
    assert float(found) == pytest.approx(float(eval(text.strip())))  # digits and signs alone


def test_the_numbers_of_an_expression_are_found():
    assert sorted(numbers(parse("(3 + 4) * 13 - 3"))) == [3, 3, 4, 13]
    for text in ("-3 + 4", "3.5 + 1"):
        with pytest.raises(Refused):
            list(numbers(parse(text)))


def test_fractions_are_shown_as_such():
    assert (str(value("7 / 2")), str(value("8 / 2"))) == ("7/2", "4")
    assert isinstance(parse("1"), ast.Constant)
