"""Countdown puzzles: how they are drawn, and the search for a solution.

An expression is built step by step: two of the numbers are taken and their result put back, until one is left. Results
are whole numbers above zero, as in the television game; what an agent writes may have fractions on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from ragen.errors import ConfigError
from ragen.seeding import Rng

MAX_DRAWS = 10_000
"""Draws until a puzzle fits; settings under which none does are refused."""
ATOM, PRODUCT, SUM = 2, 1, 0
"""How tightly an expression holds together: a number, a product or quotient, a sum or difference."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Numbers, each to be used once, and the target."""

    numbers: tuple[int, ...]
    target: int


@dataclass(frozen=True, slots=True)
class Term:
    """A result on the way, and how it came about."""

    value: int
    text: str
    strength: int = ATOM
    steps: tuple[str, ...] = ()
    """The calculations that led to it, such as "3 + 4 = 7"."""


def results(first: Term, second: Term) -> Iterator[Term]:
    """Everything that two terms give: sum, product, difference and quotient, the larger before the smaller."""
    if first.value < second.value:
        first, second = second, first
    yield join(first, "+", second, first.value + second.value)
    yield join(first, "*", second, first.value * second.value)
    if first.value > second.value:
        yield join(first, "-", second, first.value - second.value)
    if first.value % second.value == 0:
        yield join(first, "/", second, first.value // second.value)


def join(left: Term, sign: str, right: Term, value: int) -> Term:
    """Two terms and a sign, with the parentheses that are needed."""
    strength = SUM if sign in "+-" else PRODUCT
    before = left.text if left.strength >= strength else f"({left.text})"
    # 8 - (3 + 2), 8 / (4 / 2): behind - and / equals need parentheses, too.
    is_tight = right.strength > strength or (right.strength == strength and sign in "+*")
    after = right.text if is_tight else f"({right.text})"
    step = f"{left.value} {sign} {right.value} = {value}"
    return Term(value, f"{before} {sign} {after}", strength, (*left.steps, *right.steps, step))


def draw_expression(numbers: Sequence[int], rng: Rng) -> Term:
    """A random expression that uses every number once."""
    terms = [Term(value, str(value)) for value in numbers]
    while len(terms) > 1:
        rng.shuffle(terms)
        first, second = terms.pop(), terms.pop()
        terms.append(rng.choice(list(results(first, second))))
    return terms[0]


def draw_puzzle(num_numbers: int, *, max_number: int, max_target: int, seed: int) -> Puzzle:
    """The puzzle of a seed: random numbers, and the value of a random expression of them as the target."""
    rng = Rng(seed, "countdown")
    for _ in range(MAX_DRAWS):
        numbers = tuple(1 + rng.below(max_number) for _ in range(num_numbers))
        target = draw_expression(numbers, rng).value
        if target <= max_target and target not in numbers:
            return Puzzle(numbers, target)
    raise ConfigError(
        f"countdown: no puzzle of {num_numbers} numbers up to {max_number} has a target of at most {max_target}. "
        "Raise max_target or lower max_number."
    )


@lru_cache(maxsize=4096)
def solve(puzzle: Puzzle) -> Term | None:
    """An expression of all numbers that gives the target, by exhaustive search; the first in a fixed order."""
    dead: set[tuple[int, ...]] = set()

    def search(terms: tuple[Term, ...]) -> Term | None:
        if len(terms) == 1:
            return terms[0] if terms[0].value == puzzle.target else None
        key = tuple(sorted(term.value for term in terms))
        if key in dead:
            return None
        for first, second in combinations(range(len(terms)), 2):
            rest = terms[:first] + terms[first + 1 : second] + terms[second + 1 :]
            for result in results(terms[first], terms[second]):
                if found := search((*rest, result)):
                    return found
        dead.add(key)
        return None

    return search(tuple(Term(value, str(value)) for value in puzzle.numbers))
