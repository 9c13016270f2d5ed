"""C22: the mean absolute advantage of a GRPO group with binary rewards, exactly, and the gradients behind it.

Tested in tests/reproduce/test_claims.py.
"""

import math
from statistics import correlation

from ragen.algorithms.statistics import student_interval, unknown_interval
from ragen.plotting.buckets import Analysis
from ragen.reproduce.arms import PASS_RATE_GROUP, PASS_RATE_PROBE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses, by_pass_rate

SIZES = (2, 4, 8, 16, 64)
TOLERANCE = 1e-5
"""The estimator adds 1e-6 to the deviation."""


def formula(solved: int, size: int) -> float:
    """4 of 8 -> 2 * 4 / 8 * sqrt(7 / 8) = 0.935"""
    return 2 * math.sqrt(solved * (size - solved)) / size * math.sqrt((size - 1) / size)


def estimated(solved: int, size: int) -> float:
    """By the estimator that trains."""
    import torch  # a list of claims needs none

    from ragen.algorithms.group_advantage import grpo

    rewards = torch.tensor([[1.0]] * solved + [[0.0]] * (size - solved))
    zeros = torch.zeros(size, dtype=torch.long)
    advantages, _ = grpo(rewards, torch.ones(size, 1), zeros, torch.arange(size))
    return advantages.abs().mean().item()


def gradient_correlation(analysis: Analysis) -> float:
    """Of the formula with the length that the gradient of one group has, over the pass rates."""
    buckets = {k: each for k, each in by_pass_rate(analysis, PASS_RATE_GROUP).items() if 0 < k < PASS_RATE_GROUP}
    lengths = [bucket.measured("norm_one_group", "task") for bucket in buckets.values()]
    return correlation([formula(solved, PASS_RATE_GROUP) for solved in buckets], lengths)


def judge(evidence: Evidence) -> Finding:
    errors = [abs(estimated(k, size) - formula(k, size)) for size in SIZES for k in range(size + 1)]
    found = student_interval([gradient_correlation(each) for each in analyses(evidence, "GRPO", 1)])
    ours = {k: unknown_interval(estimated(k, 8)) for k in range(9)}
    points = tuple(Point(label=f"{k} of 8", ours=each, published=formula(k, 8)) for k, each in ours.items())
    return Finding(
        verdict="holds" if max(errors) < TOLERANCE else "does not hold",
        ours=f"largest error over groups of {', '.join(map(str, SIZES))}: {max(errors):.1e}; the length of a group's "
        f"gradient, by its solved episodes, correlates with the formula by {found:.2f}",
        points=points,
    )


CLAIM = Claim(
    number=22,
    sentence="With rewards of 0 and 1, the mean absolute advantage of a GRPO group with k of G solved is "
    "2 sqrt(k(G-k))/G sqrt((G-1)/G)",
    source="arithmetic; stated in studies of zero-variance groups",
    published="0.935 at 4 of 8, 0 at 0 of 8 and 8 of 8",
    measured="mean absolute advantage",
    rule="The estimator that trains gives the formula to 1e-5 for every k and G of 2, 4, 8, 16, 64. Gradients by k are "
    "told beside it and decide nothing.",
    judge=judge,
    arms={"minutes": {"GRPO": PASS_RATE_PROBE}},
)
