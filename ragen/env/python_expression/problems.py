"""Small puzzles on texts and lists, each with a Python expression that answers it.

Tested in tests/env/test_python_expression_env.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ragen.seeding import Rng

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "zu", "ken", "tor")


@dataclass(frozen=True, slots=True)
class Problem:
    """A question and an expression with the answer as its value."""

    question: str
    expression: str


def word(rng: Rng, size: int) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(size))


def numbers(rng: Rng, size: int) -> list[int]:
    return [10 + rng.below(990) for _ in range(size)]


def letters(rng: Rng, size: int) -> Problem:
    text = word(rng, 2 * size)
    letter = rng.choice(text)
    return Problem(f"How often does the letter {letter} occur in {text}?", f'"{text}".count("{letter}")')


def backwards(rng: Rng, size: int) -> Problem:
    text = word(rng, size)
    return Problem(f"How is {text} written backwards?", f'"{text}"[::-1]')


def alphabet(rng: Rng, size: int) -> Problem:
    text = word(rng, size)
    return Problem(f"What are the letters of {text} in alphabetical order?", f'"".join(sorted("{text}"))')


def digits(rng: Rng, size: int) -> Problem:
    number = 10 ** (2 * size) + rng.below(9 * 10 ** (2 * size))
    return Problem(f"What is the sum of the digits of {number}?", f"sum([int(d) for d in str({number})])")


def smallest(rng: Rng, size: int) -> Problem:
    items = numbers(rng, 2 * size)
    rank = 2 + rng.below(3)
    order = {2: "second", 3: "third", 4: "fourth"}[rank]
    listed = ", ".join(map(str, items))
    return Problem(f"Which is the {order} smallest number of {listed}?", f"sorted([{listed}])[{rank - 1}]")


def total(rng: Rng, size: int) -> Problem:
    items = numbers(rng, 2 * size)
    listed = ", ".join(map(str, items))
    return Problem(f"What is the sum of {listed}?", f"sum([{listed}])")


def multiples(rng: Rng, size: int) -> Problem:
    first, divisor = 10 + rng.below(90), 3 + rng.below(17)
    last = first + 10 * size + rng.below(100 * size)
    return Problem(
        f"How many numbers from {first} to {last} are divisible by {divisor}?",
        f"len([n for n in range({first}, {last + 1}) if n % {divisor} == 0])",
    )


PUZZLES = (letters, backwards, alphabet, digits, smallest, total, multiples)


def draw_problem(seed: int, *, size: int) -> Problem:
    """The problem of a seed; its texts and lists grow with `size`."""
    rng = Rng(seed, "python_expression")
    return rng.choice(PUZZLES)(rng, size)
