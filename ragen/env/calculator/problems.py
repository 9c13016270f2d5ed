"""Word problems: a story, the expression that it asks for, and its value, a whole number.

Tested in tests/env/test_calculator_env.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragen.seeding import Rng


@dataclass(frozen=True, slots=True)
class Problem:
    """A question and what it comes down to."""

    question: str
    expression: str
    numbers: tuple[int, ...]
    """In the order in which the question names them."""
    value: int


Draw = Callable[[], int]
"""A random number from 2 to the largest one."""


def pens(draw: Draw) -> Problem:
    a, b, c = draw(), draw(), draw()
    question = f"A shop sells {a} boxes of {b} pens each, and {c} single pens. How many pens is that?"
    return Problem(question, f"{a} * {b} + {c}", (a, b, c), a * b + c)


def seats(draw: Draw) -> Problem:
    a, b, c = draw(), draw(), draw()
    taken = min(c, a * b - 1)
    question = f"A train has {a} cars with {b} seats each. {taken} seats are taken. How many are free?"
    return Problem(question, f"{a} * {b} - {taken}", (a, b, taken), a * b - taken)


def fields(draw: Draw) -> Problem:
    a, b, c, d = draw(), draw(), draw(), draw()
    question = f"One field is {a} m by {b} m, another {c} m by {d} m. How many square metres are they together?"
    return Problem(question, f"{a} * {b} + {c} * {d}", (a, b, c, d), a * b + c * d)


def pump(draw: Draw) -> Problem:
    loss, gain, minutes = draw(), draw(), draw()
    flow = loss + gain
    question = f"A pump brings {flow} litres a minute, a hole loses {loss}. How many are there after {minutes} minutes?"
    return Problem(question, f"({flow} - {loss}) * {minutes}", (flow, loss, minutes), gain * minutes)


def coins(draw: Draw) -> Problem:
    people, share = draw(), draw()
    first = min(draw(), people * share - 1)
    second = people * share - first
    question = f"{first} coins and {second} coins are shared by {people} people. How many does each of them get?"
    return Problem(question, f"({first} + {second}) / {people}", (first, second, people), share)


STORIES = (pens, seats, fields, pump, coins)


def draw_problem(seed: int, *, max_number: int) -> Problem:
    """The problem of a seed."""
    rng = Rng(seed, "calculator")
    return rng.choice(STORIES)(lambda: 2 + rng.below(max_number - 1))
