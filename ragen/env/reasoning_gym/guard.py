"""What a scorer of reasoning-gym may be given.

Nine scorers run `eval`, or sympy's parser that is built on it, over the answer. Their answers are walked here before: a
text of which Python would do more than read numbers and lists does not reach them. A Refused says why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ragen.env.arithmetic import Refused, value

MAX_ANSWER = 10_000
"""Characters of an answer; scorers compare texts in time that grows with their square."""
MAX_FORMULA = 500
"""Characters of a formula."""
MAX_NODES = 200
"""Parts of a formula; sympy's simplification has no limit of its own."""
MAX_POWER = 12
"""Exponent of a formula."""
MAX_POWER_DEPTH = 2
"""Powers within powers."""
HUGE = re.compile(r"[eE][+-]?\d[\d_]{3,}")
"""An exponent of a number that Python would write out: 1e999999999."""
SIGNS = re.compile(r"[0-9A-Za-z+\-*/(). \n]*")
FUNCTIONS = {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "Abs"}
CONSTANTS = {"pi"}
COMPLEX = re.compile(r"[0-9+\-ij.() ]*")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def check_answer(name: str, text: str) -> None:
    """Refuse an answer that the scorer of the generator `name` must not see."""
    if len(text) > MAX_ANSWER:
        raise Refused(f"it has {len(text)} characters, at most {MAX_ANSWER} are read")
    if HUGE.search(text):
        raise Refused("it holds a number that is too large")
    if name in GUARDS:  # the other scorers compare texts and read numbers
        GUARDS[name](text)


def check_literal(text: str) -> None:
    """A text that is no Python, or Python of which nothing but lists, numbers and texts can come."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # `eval` fails on it just as well, and the scorer expects that
    if isinstance(tree.body, ast.Name):
        return  # one word, as answers to string_insertion are: to name something does nothing
    for node in ast.walk(tree.body):
        if not isinstance(node, ast.List | ast.Tuple | ast.Constant | ast.Load | ast.UnaryOp | ast.USub):
            raise Refused("it holds more than lists of numbers and texts")


def check_complex(text: str) -> None:
    """A complex number: the scorer takes NaN for any number."""
    if not COMPLEX.fullmatch(text):
        raise Refused("it is not a complex number such as 3.0 - 2.0i")


def check_formula(text: str) -> None:
    """Numbers, variables of one letter, well-known functions, + - * / and small powers."""
    if len(text) > MAX_FORMULA or not SIGNS.fullmatch(text):
        raise Refused("it is not a formula of numbers, variables, + - * / ** and functions such as sin(x)")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("it is not a formula") from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise Refused("it is too long a formula")
    walk_formula(tree.body, powers=0)


def walk_formula(node: ast.expr, *, powers: int) -> None:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            if abs(number) > 1e12:
                raise Refused("it holds a number that is too large")
        case ast.Name(id=name):
            if len(name) > 1 and name not in CONSTANTS:
                raise Refused(f"{name} is no variable")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            walk_formula(operand, powers=powers)
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            if powers >= MAX_POWER_DEPTH or abs(value(ast.unparse(exponent))) > MAX_POWER:
                raise Refused("it holds a power that is too large")
            walk_formula(base, powers=powers + 1)
        case ast.BinOp(op=operator, left=left, right=right) if isinstance(operator, OPERATORS):
            walk_formula(left, powers=powers)
            walk_formula(right, powers=powers)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            walk_formula(argument, powers=powers)
        case _:
            raise Refused("it holds something that is not part of a formula")


GUARDS: dict[str, Callable[[str], object]] = {
    "complex_arithmetic": check_complex,
    "countdown": value,
    "puzzle24": value,
    "binary_matrix": check_literal,
    "n_queens": check_literal,
    "spiral_matrix": check_literal,
    "string_insertion": check_literal,
    "intermediate_integration": check_formula,
    "polynomial_multiplication": check_formula,
    "simple_integration": check_formula,
}
