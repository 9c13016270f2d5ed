"""The advantage estimators as a configuration sees them: their names, and what each reads besides rewards.

The formulas are in ragen/algorithms. This table needs no torch, so that a configuration is checked without it.
Tested in tests/algorithms/test_advantage.py.
"""

from dataclasses import dataclass
from typing import Literal

Need = Literal["values", "turns"]


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
