"""Word problems are what they say, and the calculator works them out."""

import pytest

from ragen.env import make_env
from ragen.env.arithmetic import value
from ragen.env.calculator.env import CalculatorConfig, CalculatorEnv
from ragen.env.calculator.problems import STORIES, draw_problem


def test_the_value_of_each_story_is_that_of_its_expression():
    problems = [draw_problem(seed, max_number=99) for seed in range(200)]
    assert all(value(problem.expression) == problem.value > 0 for problem in problems)
    assert all(str(number) in problem.question for problem in problems for number in problem.numbers)
    assert len({problem.question.split()[0] for problem in problems}) >= len(STORIES) - 1
    assert len({problem.question for problem in problems}) > 190


def test_a_seed_names_the_same_problem_on_every_machine():
    assert draw_problem(1, max_number=999).expression == "23 * 220 - 425"


def test_the_tool_calculates_and_refuses():
    env = CalculatorEnv()
    env.reset(1)
    assert env.step('calculate(expression="23 * 220 - 425")').tool_result == "4635"
    assert env.step('calculate(expression="7 / 2")').tool_result == "7/2"
    refused = env.step('calculate(expression="1 / 0")')
    assert refused.tool_result == "Error: the expression has no value: it divides by zero." and not refused.is_done
    assert env.step("4635").reward == 1


def test_the_solver_calculates_first_where_there_is_time():
    env = CalculatorEnv()
    env.reset(1)
    assert env.solve() == ['calculate(expression="23 * 220 - 425")', "4635"]
    assert env.hint() == "This asks for 23 * 220 - 425."
    env.step('calculate(expression="23 * 220 - 425")')
    assert env.solve() == ["4635"] and env.hint() == "The result is 4635."
    env.step("1")
    assert env.solve() is None
    hasty = CalculatorEnv(CalculatorConfig(max_steps=1))
    hasty.reset(1)
    assert hasty.solve() == ["4635"]


@pytest.mark.parametrize("answer", ["4,635", "4635.0", "It is 4635", "four"])
def test_the_answer_is_one_plain_number(answer):
    env = make_env("calculator")
    env.reset(1)
    assert env.step(answer).reward == 0
