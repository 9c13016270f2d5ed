"""C19: GRPO's division by the deviation lifts groups of low variance.

Tested in tests/reproduce/test_claims.py.
"""

import math

from ragen.algorithms.statistics import student_interval
from ragen.reproduce.arms import DR_GRPO_PROBE, GRPO_PROBE, NO_STD, PUBLISHED_GRPO_PROBE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses, last_over_first
from ragen.reproduce.rules import above, finding


def judge(evidence: Evidence) -> Finding:
    with_std, without = ([last_over_first(each) for each in analyses(evidence, arm, 1)] for arm in ("GRPO", "Dr.GRPO"))
    ruling = above([math.log(other / own) for own, other in zip(with_std, without, strict=True)], 0)
    shares = {"GRPO": with_std, "Dr.GRPO": without}
    points = [
        Point(label=f"Q1/Q6, {name}", ours=student_interval([1 / each for each in ratios]))
        for name, ratios in shares.items()
    ]
    return finding(
        f"{'; '.join(f'{point.label} {point.ours:.3f}' for point in points)}; "
        f"the logarithm of their ratio is {ruling.estimate:.2f}",
        points,
        ruling,
    )


CLAIM = Claim(
    number=19,
    sentence="GRPO's division by the deviation amplifies groups of low reward variance",
    source="our reading of RAGEN-2's figure: norms at zero variance are a third of the largest",
    published="none: Q1/Q6 of GRPO's task gradient is .37 at step 1",
    measured="length in Q1, in that of Q6",
    rule="At step 1, by pairs of seeds: the logarithm of Q6/Q1 is larger without the division than with it.",
    judge=judge,
    arms={
        "minutes": {"GRPO": GRPO_PROBE, "Dr.GRPO": DR_GRPO_PROBE},
        "day": {"GRPO": PUBLISHED_GRPO_PROBE, "Dr.GRPO": PUBLISHED_GRPO_PROBE.but(NO_STD)},
    },
)
