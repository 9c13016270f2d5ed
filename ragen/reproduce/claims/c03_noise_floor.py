"""C3: what the lowest buckets show is sampling noise.

Tested in tests/reproduce/test_claims.py.
"""

from statistics import fmean

from ragen.algorithms.statistics import student_interval
from ragen.plotting.buckets import Analysis
from ragen.reproduce.arms import PROBES
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses
from ragen.reproduce.rules import above, below, finding


def cosines(analysis: Analysis) -> list[float]:
    return analysis.measured("split_half_cosine", "task")


def judge(evidence: Evidence) -> Finding:
    rulings, texts, points = [], [], []
    for arm in ("PPO", "GRPO"):
        found = [cosines(each) for each in analyses(evidence, arm, 1)]
        low, high = below([fmean(row[:2]) for row in found], 0.1), above([row[-1] for row in found], 0.2)
        rulings += [low, high]
        texts.append(f"{arm}: {low.estimate:.2f} in Q1 and Q2, {high.estimate:.2f} in Q6")
        points += [
            Point(label=f"{arm} Q{index + 1}", ours=student_interval(column))
            for index, column in enumerate(zip(*found, strict=True))
        ]
    return finding(f"cosine between the gradients of two halves of a bucket: {'; '.join(texts)}", points, *rulings)


CLAIM = Claim(
    number=3,
    sentence="The gradient that the lowest reward-variance buckets show is sampling noise",
    source="our reading of RAGEN-2's figure, which has no error bars",
    published="none: norms at zero variance are 6.7 of 26 (PPO) and 23 of 64 (GRPO)",
    measured="cosine of two halves",
    rule="For PPO and for GRPO, at step 1: mean split-half cosine below 0.1 in Q1 and Q2, and above 0.2 in Q6.",
    judge=judge,
    arms=PROBES,
)
