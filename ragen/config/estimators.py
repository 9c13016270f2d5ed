"""The advantage estimators as a configuration sees them: their names, and what each reads besides rewards.

The formulas are in ragen/algorithms. This table needs no torch, so that a configuration is checked without it.
Tested in tests/algorithms/test_advantage.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from ragen.config.extensions import load, refuse

Need = Literal["values", "turns"]
F = TypeVar("F", bound=Callable)

KEY = "algorithm.adv_estimator"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """What an estimator declares."""

    needs: frozenset[Need] = frozenset()
    """values: those of a critic; turns: the state in which each turn began, and what followed it."""
    bi_level: str | None = None
    """The estimator that replaces it with algorithm.bi_level_gae=True; None where there is none."""


ESTIMATORS: dict[str, Estimator] = {
    "gae": Estimator(needs=frozenset({"values"}), bi_level="bi_level_gae"),
    "grpo": Estimator(),
    "brpo": Estimator(),
    "arpo": Estimator(),
    "rloo": Estimator(),
    "reinforce_plus_plus": Estimator(),
    "reinforce_plus_plus_baseline": Estimator(),
    "gigpo": Estimator(needs=frozenset({"turns"})),
}
"""algorithm.adv_estimator -> its declaration; the functions are in ragen.algorithms.advantage.ESTIMATORS."""


def needs(*names: Need) -> Callable[[F], F]:
    """Declares what an estimator of one's own reads besides rewards: `values` of a critic, `turns`, or both.

    It stands above the function:

        @needs("values")
        def mine(token_rewards, mask, values): ...
    """
    if unknown := set(names) - set(get_args(Need)):
        raise ValueError(f"needs({', '.join(map(repr, names))}): {unknown} is unknown; there are {get_args(Need)}.")

    def declare(function: F) -> F:
        function.needs = frozenset(names)  # type: ignore[attr-defined]
        return function

    return declare


def declaration(name: str) -> Estimator:
    """What the estimator of that name declares; one of one's own is imported for it."""
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    declared = getattr(load("estimators", name, KEY), "needs", frozenset())
    if not isinstance(declared, frozenset) or not declared <= set(get_args(Need)):
        raise refuse(
            "estimators", name, KEY, f"its attribute needs is {declared!r}; declare it with @ragen.needs(...)."
        )
    return Estimator(needs=declared)
