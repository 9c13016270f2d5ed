"""Countdown puzzles are the same everywhere, can be solved, and are solved."""

import itertools

import pytest

from ragen.env.arithmetic import value
from ragen.env.countdown.puzzle import Puzzle, Term, draw_expression, draw_puzzle, join, results, solve
from ragen.errors import ConfigError
from ragen.seeding import Rng


def test_seeds_name_the_same_puzzles_on_every_machine():
    found = [draw_puzzle(3, max_number=20, max_target=100, seed=seed) for seed in range(3)]
    assert found == [Puzzle((9, 7, 7), 70), Puzzle((6, 18, 15), 9), Puzzle((11, 14, 13), 10)]


@pytest.mark.parametrize("num_numbers", [2, 3, 4, 5, 6])
def test_every_puzzle_has_a_solution_of_all_its_numbers(num_numbers):
    for seed in range(20):
        puzzle = draw_puzzle(num_numbers, max_number=20, max_target=100, seed=seed)
        assert len(puzzle.numbers) == num_numbers and 1 <= puzzle.target <= 100
        term = solve(puzzle)
        assert term is not None and value(term.text) == puzzle.target == term.value
        assert len(term.steps) == num_numbers - 1 and term.steps[-1].endswith(f" = {puzzle.target}")


def test_what_cannot_be_reached_has_no_solution():
    assert solve(Puzzle((1, 1), 7)) is None
    reached = {term.value for term in results(Term(8, "8"), Term(2, "2"))}
    assert reached == {10, 16, 6, 4}


def test_random_expressions_are_worth_what_they_say():
    """Parentheses stand where they are needed: the text has the value of the term."""
    rng = Rng(1, "test")
    for _ in range(300):
        term = draw_expression([1 + rng.below(9) for _ in range(5)], rng)
        assert value(term.text) == term.value, term


def test_parentheses_stand_where_they_are_needed():
    sums = join(Term(3, "3"), "+", Term(2, "2"), 5)
    shown = [join(Term(8, "8"), sign, sums, 0).text for sign in "+-*/"]
    assert shown == ["8 + 3 + 2", "8 - (3 + 2)", "8 * (3 + 2)", "8 / (3 + 2)"]


def test_settings_without_a_puzzle_are_refused():
    # Two numbers give 2 only as 1 + 1 or 2 * 1, and the target may not be one of the numbers.
    assert draw_puzzle(2, max_number=1000, max_target=100, seed=0)
    with pytest.raises(ConfigError, match="Raise max_target"):
        draw_puzzle(2, max_number=1, max_target=0, seed=0)


def test_levels_differ():
    puzzles = [draw_puzzle(4, max_number=20, max_target=100, seed=seed) for seed in range(200)]
    assert all(a != b for a, b in itertools.combinations(puzzles, 2))
