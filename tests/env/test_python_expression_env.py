"""Expressions are walked, never evaluated: what they give, and what is refused before it costs anything."""

from __future__ import annotations

import pytest

from ragen.env import make_env
from ragen.env.python_expression.expression import MAX_SIZE, Refused, value, weight
from ragen.env.python_expression.problems import PUZZLES, draw_problem

VALUES = [
    "1 + 2 * 3 - 7 // 2 % 3",
    "2 ** 10 + 2 ** -1",
    "'ab' * 3 + 'c'",
    "'reference'.count('e')",
    "'walk'[::-1]",
    "''.join(sorted('walk'))",
    "sum([int(d) for d in str(90210)])",
    "sorted([3, 1, 2])[1]",
    "len([n for n in range(10, 99) if n % 7 == 0])",
    "max(3, 9) if 'a' in 'abc' and not 1 > 2 else None",
    "[x * 2 for x in (1, 2)]",
    "'a,b'.split(',')[-1].upper().replace('B', 'xy')",
    "1 < 2 < 3 != 4",
    "sum(c == 'e' for c in 'reference')",
    "[[i * j for j in range(3)] for i in range(3)]",
    "min([len(w) for w in 'one two three'.split()])",
    "round(2.345, 2) + abs(-1)",
]


@pytest.mark.parametrize("text", VALUES)
def test_an_expression_has_the_value_that_python_gives_it(text):
    assert value(text) == eval(text)  # the texts are those of this file


def test_a_set_has_one_order():
    assert value("set('banana')") == ["a", "b", "n"]


HOSTILE = {
    "__import__('os').system('exit 1')": "a function in it is not known",
    "open('/etc/passwd')": "a function in it is not known",
    "().__class__.__bases__": "Attribute is not allowed",
    "''.__class__()": "method __class__",
    "'{0.__class__}'.format(1)": "method format",
    "f'{1:1000000000}'": "JoinedStr is not allowed",
    "'%1000000000d' % 1": "for numbers",
    "(lambda: 1)()": "not known",
    "x": "the name x is not known",
    "9 ** 9 ** 9": "too large",
    "2 ** 99999": "too large",
    "1 << 99999999": "LShift is not allowed",
    "'a' * 10 ** 9": "too large",
    "[['a' * 9000] * 10]": "too large",
    "[[[0] * 100] * 100] * 100": "too large",
    "range(10 ** 9)": "too large",
    "[1 for a in range(9999) if [1 for b in range(9999)]]": "too many steps",
    "'a'.join(['b' * 5000, 'c' * 6000])": "too large",
    "('a' * 9000).replace('a', 'bb')": "too large",
    "round(1, -10 ** 9)": "at most 20 digits",
    "int('9' * 5000)": "ValueError",
    "1 / 0": "ZeroDivisionError",
    "[1][5]": "IndexError",
    "'a' + 1": "TypeError",
    "(-8) ** 0.5": "complex",
    "b'x'": "bytes",
    "...": "ellipsis",
    "1 +": "not a Python expression",
    "x = 1": "not a Python expression",
    "-" * 900 + "1": "nested",
    "(" * 900 + ")" * 900: "1,800 characters",
    "[a for a in [1] for b in [2]]": "one `for`",
    "{1: 2}": "Dict is not allowed",
    "max([1], key=len)": "by position",
    "": "not a Python expression",
    "\x00": "",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_not_allowed_is_refused_with_the_reason(text):
    with pytest.raises(Refused) as refused:
        value(text)
    assert HOSTILE[text] in str(refused.value)


def test_the_weight_of_a_value_counts_all_depths_and_stops_in_time():
    assert weight(["ab", [1, 2]]) == 7
    nested: object = 0
    for _ in range(20):
        nested = [nested] * 50
    assert weight(nested) > MAX_SIZE


def test_every_puzzle_is_answered_by_its_expression():
    problems = [draw_problem(seed, size=4) for seed in range(100)]
    assert all(str(value(problem.expression)) for problem in problems)
    assert len({" ".join(problem.question.split()[:4]) for problem in problems}) >= len(PUZZLES)
    assert draw_problem(1, size=4).expression == '"rutormeni"[::-1]'


def test_the_environment_uses_the_walker():
    env = make_env("python_expression")
    env.reset(1)
    call, answer = env.solve() or []
    assert env.hint() == "Python can work this out."
    assert env.step(call).tool_result == answer == "inemrotur" and env.hint() == "The result is inemrotur."
    refused = env.step('python(expression="open(1)")')
    assert refused.tool_problem == "refused" and "not known; there are: abs, all" in (refused.tool_result or "")
    assert env.step("inemrotur").reward == 1
