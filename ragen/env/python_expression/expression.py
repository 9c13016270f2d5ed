"""Python expressions that a model wrote: read by Python's parser and walked here, never evaluated by Python.

value('"".join(sorted("walk"))') -> "aklw"

There are numbers, texts, lists and tuples, operators, comparisons, slices, list comprehensions, and the functions and
methods listed below; there are no attributes, names or imports beside them. Sizes are checked before anything large
is made, and every node and every character made costs a step of a budget, so that no text costs time or memory.

Tested in tests/env/test_python_expression_env.py.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragen.env.arithmetic import Refused

MAX_LENGTH = 1_000
"""Characters of an expression."""
MAX_BITS = 2_048
"""Of a whole number."""
MAX_SIZE = 10_000
"""Characters and items of one value, everything in it counted."""
MAX_DIGITS = 20
"""To which a number is rounded."""
MAX_STEPS = 100_000
"""Nodes that are walked, and characters and items that are made, for one expression."""


def value(text: str) -> Any:
    """The value of an expression."""
    if len(text) > MAX_LENGTH:
        raise Refused(f"it has {len(text):,} characters, at most {MAX_LENGTH:,} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return Walker().walk(tree, {})
    except Refused:
        raise
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise Refused("it is not a Python expression, or nested too deeply") from error
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


TOO_LARGE = "a text or list in it is too large"


def weight(value: Any, limit: int = MAX_SIZE) -> int:
    """Characters and items of a value, at all depths; more than `limit` are not counted.

    ["ab", [1, 2]] -> 1 + (1 + 2) + (1 + (1 + 1)) = 7
    """
    if isinstance(value, str):
        return 1 + len(value)
    total = 1
    if isinstance(value, list | tuple):
        for item in value:
            total += weight(item, limit - total)
            if total > limit:
                break
    return total


def power(base: Any, exponent: Any) -> Any:
    _numbers(base, exponent)
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        if base.bit_length() * exponent > 2 * MAX_BITS:
            raise Refused("its numbers are too large")
    return base**exponent


def multiply(left: Any, right: Any) -> Any:
    for items, count in ((left, right), (right, left)):
        if isinstance(items, str | list | tuple):
            if type(count) is not int:
                raise Refused("texts and lists are multiplied by whole numbers only")
            if weight(items) * max(0, count) > MAX_SIZE:
                raise Refused(TOO_LARGE)
    return left * right


def modulo(left: Any, right: Any) -> Any:
    _numbers(left, right)  # of a text it would be formatting, which can ask for any width
    return left % right


def _numbers(*values: Any) -> None:
    if not all(isinstance(each, int | float) for each in values):
        raise Refused("an operator in it is for numbers")


BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: modulo,
    ast.Pow: power,
}
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


def _range(*bounds: int) -> list[int]:
    if not all(type(bound) is int for bound in bounds):
        raise Refused("range takes whole numbers")
    numbers = range(*bounds)
    if len(numbers) > MAX_SIZE:
        raise Refused("a range in it is too large")
    return list(numbers)


def _sum(items: Sequence[Any]) -> Any:
    for item in items:
        _numbers(item)
    return sum(items)


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MAX_SIZE:
        raise Refused(TOO_LARGE)
    return text.replace(old, new)


def _join(separator: str, parts: Sequence[str]) -> str:
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_SIZE:
        raise Refused(TOO_LARGE)
    return separator.join(parts)


def _round(number: Any, digits: int = 0) -> Any:
    if abs(digits) > MAX_DIGITS:
        raise Refused(f"numbers are rounded to at most {MAX_DIGITS} digits")
    return round(number, digits) if digits else round(number)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{each.__name__: each for each in (abs, all, any, bool, chr, len, max, min, ord)},
    "float": lambda value: float(value),
    "int": lambda value: int(value),
    "list": lambda items: list(items),
    "range": _range,
    "reversed": lambda items: list(items)[::-1],
    "round": _round,
    "set": lambda items: sorted(set(items)),
    "sorted": lambda items: sorted(items),
    "str": lambda value: str(value),
    "sum": _sum,
}
"""A set comes as a sorted list: the order of Python's own differs from process to process."""
PLAIN_METHODS = (
    *("count", "endswith", "find", "index", "isalpha", "isdigit"),
    *("lower", "startswith", "strip", "title", "upper"),
)
METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {name: getattr(str, name) for name in PLAIN_METHODS}
    | {
        "join": _join,
        "replace": _replace,
        "split": lambda text, separator=None: text.split(separator),
    },
    list: {"count": list.count, "index": list.index},
    tuple: {"count": tuple.count, "index": tuple.index},
}


class Walker:
    """Walks one expression within one budget."""

    def __init__(self) -> None:
        self.steps_left = MAX_STEPS

    def walk(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """The value of a node; `names` are the variables of the comprehensions around it."""
        handler = HANDLERS.get(type(node))
        if handler is None:
            raise Refused(f"{type(node).__name__} is not allowed in it")
        return self.bounded(handler(self, node, names))

    def bounded(self, result: Any) -> Any:
        """A result that is not too large, paid for."""
        if isinstance(result, int):
            if result.bit_length() > MAX_BITS:
                raise Refused("its numbers are too large")
        elif not (isinstance(result, str | list | tuple | float) or result is None):
            raise Refused(f"a value in it is of a kind that is not allowed, {type(result).__name__}")
        if weight(result) > MAX_SIZE:
            raise Refused(TOO_LARGE)
        self.pay(result)
        return result

    def pay(self, *values: Any) -> None:
        """Making values, and looking through them, costs steps."""
        self.steps_left -= sum(map(weight, values))
        if self.steps_left < 0:
            raise Refused("it takes too many steps")

    def constant(self, node: ast.Constant, names: Mapping[str, Any]) -> Any:
        return node.value

    def name(self, node: ast.Name, names: Mapping[str, Any]) -> Any:
        if node.id not in names:
            raise Refused(f"the name {node.id[:40]} is not known")
        return names[node.id]

    def binary(self, node: ast.BinOp, names: Mapping[str, Any]) -> Any:
        if type(node.op) not in BINARY:
            raise Refused(f"the operator {type(node.op).__name__} is not allowed in it")
        return BINARY[type(node.op)](self.walk(node.left, names), self.walk(node.right, names))

    def unary(self, node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
        if type(node.op) not in UNARY:
            raise Refused(f"the operator {type(node.op).__name__} is not allowed in it")
        return UNARY[type(node.op)](self.walk(node.operand, names))

    def boolean(self, node: ast.BoolOp, names: Mapping[str, Any]) -> Any:
        is_and, result = isinstance(node.op, ast.And), None
        for part in node.values:
            result = self.walk(part, names)
            if bool(result) is not is_and:
                return result
        return result

    def compare(self, node: ast.Compare, names: Mapping[str, Any]) -> bool:
        left = self.walk(node.left, names)
        for op, part in zip(node.ops, node.comparators, strict=True):
            if type(op) not in COMPARE:
                raise Refused(f"the comparison {type(op).__name__} is not allowed in it")
            right = self.walk(part, names)
            self.pay(left, right)
            if not COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def condition(self, node: ast.IfExp, names: Mapping[str, Any]) -> Any:
        return self.walk(node.body if self.walk(node.test, names) else node.orelse, names)

    def items(self, node: ast.List | ast.Tuple, names: Mapping[str, Any]) -> list[Any] | tuple[Any, ...]:
        found = [self.walk(part, names) for part in node.elts]
        return found if isinstance(node, ast.List) else tuple(found)

    def subscript(self, node: ast.Subscript, names: Mapping[str, Any]) -> Any:
        items, index = self.walk(node.value, names), node.slice
        if not isinstance(items, str | list | tuple):
            raise Refused("only texts and lists have parts")
        if isinstance(index, ast.Slice):
            bounds = [part and self.walk(part, names) for part in (index.lower, index.upper, index.step)]
            return items[slice(*bounds)]
        return items[self.walk(index, names)]

    def call(self, node: ast.Call, names: Mapping[str, Any]) -> Any:
        if node.keywords:
            raise Refused("functions take arguments by position only")
        args = [self.walk(part, names) for part in node.args]
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            function = FUNCTIONS[node.func.id]
        elif isinstance(node.func, ast.Attribute):
            owner = self.walk(node.func.value, names)
            methods = METHODS.get(type(owner), {})
            if node.func.attr not in methods:
                raise Refused(f"the method {node.func.attr[:40]} is not known")
            function, args = methods[node.func.attr], [owner, *args]
        else:
            known = ", ".join(sorted(FUNCTIONS))
            raise Refused(f"a function in it is not known; there are: {known}")
        self.pay(*args)
        return function(*args)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, names: Mapping[str, Any]) -> list[Any]:
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            raise Refused("a comprehension has one `for` with one name")
        loop, found = node.generators[0], []
        variable = loop.target.id  # pyright: ignore[reportAttributeAccessIssue]
        items = self.walk(loop.iter, names)
        if not isinstance(items, str | list | tuple):
            raise Refused("only texts and lists can be gone through")
        for item in items:
            inner = {**names, variable: item}
            if all(self.walk(test, inner) for test in loop.ifs):
                found.append(self.walk(node.elt, inner))
        return found


HANDLERS: Mapping[type[ast.AST], Callable[[Walker, Any, Mapping[str, Any]], Any]] = {
    ast.Constant: Walker.constant,
    ast.Name: Walker.name,
    ast.BinOp: Walker.binary,
    ast.UnaryOp: Walker.unary,
    ast.BoolOp: Walker.boolean,
    ast.Compare: Walker.compare,
    ast.IfExp: Walker.condition,
    ast.List: Walker.items,
    ast.Tuple: Walker.items,
    ast.Subscript: Walker.subscript,
    ast.Call: Walker.call,
    ast.ListComp: Walker.comprehension,
    ast.GeneratorExp: Walker.comprehension,
}
