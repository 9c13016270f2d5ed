"""When an episode counts as solved, in a few words of YAML: "reward >= 475", "terminated", "info.is_success"."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragen.env.boundary import as_number
from ragen.errors import ConfigError

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
TERM = re.compile(r"(?P<what>reward|terminated|info\.\w+)(?:\s*(?P<sign>>=|<=|==|>|<)\s*(?P<bound>\S+))?")
HELP = (
    'Write "reward >= X" (the sum of the episode\'s rewards), "terminated", "info.key" or "info.key >= X"; '
    'join several with "and".'
)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: a value, and what it is compared with; without a comparison it must not be 0."""

    what: str
    sign: str | None
    bound: float


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """Conditions that must all hold."""

    terms: tuple[Term, ...]

    def __call__(self, *, reward: float, is_terminated: bool, info: Mapping[str, Any]) -> bool:
        """`reward` is the sum of the episode so far. A key that `info` lacks counts as failure."""
        values = {"reward": reward, "terminated": float(is_terminated)}
        for term in self.terms:
            key = term.what.removeprefix("info.")
            if term.what not in values and key not in info:
                return False
            value = values[term.what] if term.what in values else as_number(info[key])
            if not (COMPARISONS[term.sign](value, term.bound) if term.sign else value != 0):
                return False
        return True


def parse_rule(text: str, key: str) -> SuccessRule:
    """A rule from its words; `key` names the option in the error.

    "terminated and reward >= 1" -> SuccessRule((Term("terminated", None, 0.0), Term("reward", ">=", 1.0)))
    """
    terms = []
    for part in re.split(r"\s+and\s+", text.strip()):
        found = TERM.fullmatch(part.strip())
        bound = _number(found["bound"]) if found else None
        is_bare_reward = found is not None and found["what"] == "reward" and not found["sign"]
        if found is None or bound is None or is_bare_reward:
            raise ConfigError(f"{key} is {text!r}, of which {part!r} is not a condition. {HELP}")
        terms.append(Term(found["what"], found["sign"], bound))
    return SuccessRule(tuple(terms))


def _number(text: str | None) -> float | None:
    """0.0 where nothing is given, None where it is not a finite number."""
    try:
        number = float(text or "0")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
