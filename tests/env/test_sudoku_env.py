"""Sudoku writes what breaks no rule, and says why the rest is refused."""

import pytest

from ragen.env.sudoku.env import SudokuConfig, SudokuEnv
from ragen.env.sudoku.puzzle import Puzzle
from ragen.errors import ConfigError
from ragen.seeding import Rng

#   1 2 | 3 4       1 . | 3 4
#   3 4 | 1 2       3 4 | 1 2
#   ----+----       ----+----
#   2 1 | 4 3       . . | . 3
#   4 3 | 2 1       4 3 | 2 1
SOLUTION = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
GIVENS = (1, 0, 3, 4, 3, 4, 1, 2, 0, 0, 0, 3, 4, 3, 2, 1)
FIRST = "r1: 1 . 3 4\nr2: 3 4 1 2\nr3: . . . 3\nr4: 4 3 2 1"


@pytest.fixture
def env() -> SudokuEnv:
    env = SudokuEnv(SudokuConfig(size=4, num_givens=12, max_placements=2, max_steps=3))
    assert env.load(Puzzle(4, GIVENS, SOLUTION)) == FIRST
    return env


def test_every_cell_earns_its_share_and_the_full_board_the_rest(env):
    first, last = env.step("r1c2=2 r3c1=2"), env.step("r3c2=1, r3c3=4")
    assert first.observation == "r1: 1 2 3 4\nr2: 3 4 1 2\nr3: 2 . . 3\nr4: 4 3 2 1"
    assert (first.reward, last.reward) == (0.25, 0.25 + 0.5)
    assert (first.is_done, last.terminated, last.info["success"]) == (False, True, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("r1c2=1", "r1c2=1 was refused: row 1 has a 1."),
        ("r3c3=1", "r3c3=1 was refused: column 3 has a 1."),
        ("r1c1=2", "r1c1=2 was refused: the cell is given."),
        ("r5c1=2", "r5c1=2 was refused: there is no such cell."),
        ("r1c2=5", "r1c2=5 was refused: digits are 1 to 4."),
        ("r1c2=1 r3c3=1", "r1c2=1 was refused: row 1 has a 1.\nr3c3=1 was refused: column 3 has a 1."),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_reason(env, text, reason):
    result = env.step(text)
    assert result.observation == f"{FIRST}\n{reason}"
    assert (result.reward, result.info["action_is_valid"], result.info["action_is_effective"]) == (0, 1, 0)


def test_a_box_is_named_when_row_and_column_are_free():
    env = SudokuEnv(SudokuConfig(size=4, num_givens=5, max_steps=4))
    env.load(Puzzle(4, (1, *(0,) * 15), SOLUTION))
    assert env.step("r2c2=1").observation.endswith("r2c2=1 was refused: box 1 has a 1.")


def test_digits_beyond_the_limit_of_an_answer_are_refused(env):
    assert env.step("r1c2=2 r3c1=2 r3c2=1").observation.endswith("r3c2=1 was refused: an answer holds 2 at most.")


def test_many_refusals_are_counted(env):
    assert env.step("r1c1=1 " * 6).observation.count("\n") == 3 + 3 + 1
    assert env.render().endswith("\n3 more were refused.")


def test_a_text_without_digits_for_cells_is_invalid_and_the_last_answer_ends_the_episode(env):
    results = [env.step("no idea") for _ in range(3)]
    assert results[0].observation == f"{FIRST}\nYour last answer was refused: write digits as r1c2=3."
    assert [result.info["action_is_valid"] for result in results] == [0, 0, 0]
    assert [result.truncated for result in results] == [False, False, True]


def test_a_wrong_digit_stays_until_it_is_overwritten_or_emptied_and_its_share_is_taken_back():
    env = SudokuEnv(SudokuConfig(size=4, num_givens=5, max_placements=2, max_steps=8))
    givens = (1, 0, 0, 0, *(0,) * 11, 1)
    env.load(Puzzle(4, givens, SOLUTION))
    share = 0.5 / 14
    assert env.step("r1c2=3").reward == pytest.approx(share)  # 3 is wrong and breaks no rule
    assert env.hint().startswith("r1c2=3 is wrong")
    assert env.solve()[0].startswith("r1c2=0 ")
    assert env.step("r1c2=4").reward == 0
    assert env.step("r1c2=0").reward == pytest.approx(-share)
    assert env.board == givens


def test_solutions_lead_to_the_end_from_boards_with_mistakes():
    env = SudokuEnv(SudokuConfig(size=4, num_givens=6, max_placements=3, max_steps=30))
    for seed in range(20):
        env.reset(seed)
        for draw in range(3):
            env.step(env.sample_text(Rng(seed, "mistakes", draw)))
        results = [env.step(text) for text in env.solve()]
        assert results[-1].terminated and not results[-2].is_done


def test_thoughts_hold_a_reason_for_each_digit(env):
    assert env.solve() == ["r1c2=2 r3c1=2", "r3c2=1 r3c3=4"]
    assert env.hint() == "r1c2 only 2 fits, r3c1 only 2 fits."


def test_examples_show_the_form_and_no_right_digit():
    env = SudokuEnv()
    for seed in range(30):
        env.reset(seed)
        before = env.board
        assert env.step(env.example_answer()).info["action_is_valid"] == 1
        changed = [cell for cell in range(16) if env.board[cell] != before[cell]]
        assert all(env.board[cell] != env.puzzle.solution[cell] for cell in changed)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"size": 4, "num_givens": 4}, "A board of 4x4 takes 5 to 15"),
        ({"size": 9, "num_givens": 81}, "A board of 9x9 takes 26 to 80"),
        ({"size": 4, "max_placements": 1, "max_steps": 7}, "To fill 8 cells takes 8 answers of 1 digits"),
    ],
)
def test_options_without_a_solvable_puzzle_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason):
        SudokuConfig(**options)
