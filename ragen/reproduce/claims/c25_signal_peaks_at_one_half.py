"""C25: the signal is largest in groups that solve their level half of the time.

Tested in tests/reproduce/test_claims.py.
"""

import math
from statistics import fmean

from ragen.algorithms.statistics import student_interval
from ragen.plotting.buckets import Analysis
from ragen.reproduce.arms import PASS_RATE_GROUP, PASS_RATE_PROBE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses, by_pass_rate
from ragen.reproduce.rules import above, finding

MIDDLE, ENDS = (3, 4, 5), (1, 7)
"""Solved episodes of 8."""


def signals(analysis: Analysis) -> dict[int, float]:
    """Solved episodes -> length of the task gradient without sampling noise, over that of one group on average."""
    buckets = by_pass_rate(analysis, PASS_RATE_GROUP)
    unit = fmean(bucket.measured("norm_one_group", "task") for k, bucket in buckets.items() if 0 < k < PASS_RATE_GROUP)
    found = {k: bucket.measured("norm_debiased", "task") / unit for k, bucket in buckets.items()}
    return {k: 0.0 if k in (0, PASS_RATE_GROUP) else signal for k, signal in found.items()}


def mean_at(found: dict[int, float], solved: tuple[int, ...]) -> float:
    known = [found[k] for k in solved if not math.isnan(found.get(k, math.nan))]
    return fmean(known) if known else math.nan


def judge(evidence: Evidence) -> Finding:
    found = [signals(each) for each in analyses(evidence, "GRPO", 1)]
    ruling = above([mean_at(each, MIDDLE) - mean_at(each, ENDS) for each in found], 0)
    points = [
        Point(label=f"{k} of 8", ours=student_interval(values))
        for k in range(PASS_RATE_GROUP + 1)
        if (values := [each[k] for each in found if not math.isnan(each.get(k, math.nan))])
    ]
    return finding(
        f"signal at 3 to 5 of 8 less that at 1 and 7 of 8, in lengths of one group's gradient: {ruling.estimate:+.3f}",
        points,
        ruling,
    )


CLAIM = Claim(
    number=25,
    sentence="The learning signal peaks in groups that solve their level half of the time",
    source="studies of difficulty filtering: the variance of a binary reward is p(1-p)",
    published="variance .25 at one half, .11 at 1 and 7 of 8",
    measured="signal, in lengths of a group's gradient",
    rule="GRPO on lakes, by seeds: the length of the task gradient, without the part that sampling adds, is larger in "
    "groups with 3 to 5 of 8 solved than in those with 1 or 7.",
    judge=judge,
    arms={"minutes": {"GRPO": PASS_RATE_PROBE}},
)
