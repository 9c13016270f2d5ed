"""Arithmetic that a model wrote: read into a tree by Python's parser and walked here, never evaluated by Python.

value("(3 + 4) * 5") -> Fraction(35, 1)

Length, signs, operators and the size of every result are bounded, so that no text costs time or memory.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

MAX_LENGTH = 200
"""Characters of an expression."""
MAX_BITS = 256
"""Of the numerator and of the denominator of any result."""
SIGNS = re.compile(r"[0-9+\-*/%(). ]*")
"""What an expression may be made of; no word gets as far as the parser."""


class Refused(ValueError):
    """Why a text has no value; the message is written for whoever wrote the text."""


Operators = Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]


def divide(left: Fraction, right: Fraction) -> Fraction:
    if not right:
        raise Refused("it divides by zero")
    return left / right


BASIC: Operators = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: divide}
"""The four operations."""


def parse(text: str) -> ast.expr:
    """The tree of an expression."""
    if len(text) > MAX_LENGTH:
        raise Refused(f"it has {len(text)} characters, at most {MAX_LENGTH} are read")
    text = " ".join(text.split())
    if not SIGNS.fullmatch(text):
        raise Refused("it holds more than numbers, operators and parentheses")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise Refused("it is not an arithmetic expression") from error


def evaluate(node: ast.expr, operators: Operators = BASIC) -> Fraction:
    """The value of a tree; whole numbers and decimals, a sign in front, and the given operators."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return bounded(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = evaluate(node.operand, operators)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in operators:
        left, right = evaluate(node.left, operators), evaluate(node.right, operators)
        return bounded(operators[type(node.op)](left, right))
    raise Refused("it holds an operator that is not allowed")


def bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Refused("its numbers are too large")
    return value


def value(text: str, operators: Operators = BASIC) -> Fraction:
    return evaluate(parse(text), operators)


def numbers(node: ast.expr) -> Iterator[int]:
    """The numbers of a tree as they are written, from left to right; each must be a whole number without a sign."""
    for part in ast.walk(node):
        if isinstance(part, ast.UnaryOp):
            raise Refused("it holds a sign in front of a number")
        if isinstance(part, ast.Constant):
            if type(part.value) is not int:
                raise Refused(f"{part.value} is not a whole number")
            yield part.value
