"""Nine scorers of reasoning-gym evaluate the answer: nothing gets there that Python would do more with than read it."""

import pytest

from ragen.env.arithmetic import Refused
from ragen.env.checker import HOSTILE
from ragen.env.reasoning_gym.guard import GUARDS, check_answer

ATTACKS = [
    "__import__('os').system('true')",
    "[].__class__.__base__.__subclasses__()",
    "(lambda: 0)()",
    "[x for x in (1).__class__.__mro__]",
    "open('/etc/passwd').read()",
    "exec('1')",
    "f'{1}'",
    "9**9**9",
    "(((x**12)**12)**12)",
    "1e99999",
    "sin(cos)(x)",
    "x.diff(x)",
    "Integral(x, x)",
]


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("text", [text for text in HOSTILE if "import" in text or "**" in text])
def test_hostile_texts_that_are_python_are_refused(name: str, text: str):
    with pytest.raises(Refused):
        check_answer(name, text.strip())


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("name", GUARDS)
def test_nothing_that_does_more_than_name_a_value_gets_through(name: str, text: str):
    with pytest.raises(Refused):
        check_answer(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("countdown", "49*(85 - 1)/14 - 42 - 73"),
        ("puzzle24", "10*(8 - 5) - 6"),
        ("simple_integration", "-5*X**9 - 2*X**6/3 + 4*X**3 + C"),
        ("intermediate_integration", "-4*(-2*x - 8)**(3/2)/3 + C"),
        ("intermediate_integration", "-exp(x)*sin(x) + exp(x)*cos(x) + C"),
        ("spiral_matrix", "2 1 5 1"),
        ("spiral_matrix", "[2, 1, -5, 1]"),
        ("binary_matrix", "0 0 0\n0 1 0\n1 2 1"),
        ("binary_matrix", "[[0, 0], [1, 0]]"),
        ("n_queens", "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _"),
        ("string_insertion", '["A", "B"]'),
        ("string_insertion", "DACEDDCDCEBEBCBAE"),
        ("complex_arithmetic", "-3.0 - 12.0i"),
        ("basic_arithmetic", "any text that is compared, __import__ too"),
    ],
)
def test_answers_of_the_usual_form_pass(name: str, text: str):
    assert check_answer(name, text) is None


def test_a_scorer_that_takes_nan_for_any_number_does_not_see_it():
    with pytest.raises(Refused, match=r"not a complex number"):
        check_answer("complex_arithmetic", "NaN")


@pytest.mark.parametrize("text", ["1e999999999", "1E+999_999_999", "x" * 10_001])
def test_huge_numbers_and_texts_are_refused_everywhere(text: str):
    with pytest.raises(Refused):
        check_answer("coin_flip", text)
