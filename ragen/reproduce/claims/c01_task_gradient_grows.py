"""C1: the task gradient grows with the reward variance of the groups.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.algorithms.statistics import student_interval
from ragen.reproduce.arms import PROBES
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses, last_over_first, rank_correlation
from ragen.reproduce.rules import above, finding

PUBLISHED = {"PPO": (6.7, 6.7, 6.7, 9.6, 20, 26), "GRPO": (3.3, 3.6, 3.3, 3.7, 6.0, 8.9)}
"""Norms of the buckets Q1 to Q6, early in training."""


def judge(evidence: Evidence) -> Finding:
    rulings, texts, points = [], [], []
    for arm, published in PUBLISHED.items():
        found = analyses(evidence, arm, 1)
        ranks = above([rank_correlation(each) for each in found], 0.8)
        ratios = above([last_over_first(each) for each in found], 2)
        rulings += [ranks, ratios]
        texts.append(f"{arm}: rank correlation {ranks.estimate:.2f}, Q6/Q1 {ratios.estimate:.2f}")
        for index, norm in enumerate(published):
            ours = [each.values("task")[index] / each.values("task")[0] for each in found]
            points.append(
                Point(label=f"{arm} Q{index + 1}", ours=student_interval(ours), published=norm / published[0])
            )
    return finding("; ".join(texts), points, *rulings)


CLAIM = Claim(
    number=1,
    sentence="The task gradient grows with the reward variance of the groups it is taken from",
    source="RAGEN-2, figure of gradient norms by bucket",
    published="norm of Q6 over Q1: PPO 3.9, GRPO 2.7 (step 1)",
    measured="length of the task gradient, in that of Q1",
    rule="For PPO and for GRPO, at step 1: mean rank correlation of norm and bucket above 0.8 and mean Q6/Q1 above 2.",
    judge=judge,
    arms=PROBES,
)
