"""The gradient analyses of runs, as claims read them.

Tested in tests/reproduce/test_claims.py.
"""

from __future__ import annotations

from ragen.errors import RagenError
from ragen.plotting.buckets import Analysis, Bucket, read_analysis
from ragen.plotting.gradient_table import spearman
from ragen.plotting.history import read_history
from ragen.reproduce.claim import Evidence
from ragen.tracking.names import Component


def analyses(evidence: Evidence, arm: str, step: int) -> list[Analysis]:
    """Of every seed, at that step."""
    found = []
    for folder in evidence.folders(arm):
        history = read_history(str(folder))
        if step not in history.steps:
            raise RagenError(f"{folder} has no step {step}, whose gradients decide. Do not change the number of steps.")
        found.append(read_analysis(history, step))
    return found


def last_over_first(analysis: Analysis, component: Component = "task") -> float:
    """The norm of the highest bucket over that of the lowest."""
    norms = analysis.values(component)
    return norms[-1] / norms[0]


def largest_over_smallest(analysis: Analysis, component: Component) -> float:
    norms = analysis.values(component)
    return max(norms) / min(norms)


def rank_correlation(analysis: Analysis) -> float:
    """Of the task norm with the bucket."""
    return spearman(analysis.values("task"))


def by_pass_rate(analysis: Analysis, group_size: int) -> dict[int, Bucket]:
    """Solved episodes of a group -> its bucket, where rewards are 0 and 1 and buckets are those of the mean reward."""
    return {round(bucket["reward_mean"] * group_size): bucket for bucket in analysis.buckets}
