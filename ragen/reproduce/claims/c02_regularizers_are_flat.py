"""C2: the gradients of entropy and KL do not depend on the reward variance.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import PROBES
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.gradients import analyses, largest_over_smallest
from ragen.reproduce.rules import below, finding
from ragen.tracking.names import Component

PARTS: tuple[tuple[Component, int], ...] = (("entropy", 1), ("kl", 11))
"""Component and step: at step 1 the policy is the reference, so that the KL has no gradient yet."""
PUBLISHED = {"PPO": 1.26, "GRPO": 1.07}


def judge(evidence: Evidence) -> Finding:
    rulings, texts, points = [], [], []
    for arm in PUBLISHED:
        for component, step in PARTS:
            ratios = [largest_over_smallest(each, component) for each in analyses(evidence, arm, step)]
            ruling = below(ratios, 1.3)
            rulings.append(ruling)
            texts.append(f"{arm}, {component} at step {step}: {ruling.estimate:.2f}")
            published = PUBLISHED[arm] if step == 1 else None
            points.append(Point(label=f"{arm} {component}", ours=ruling.estimate, published=published))
    return finding(f"largest over smallest norm: {'; '.join(texts)}", points, *rulings)


CLAIM = Claim(
    number=2,
    sentence="The gradients of entropy bonus and KL are flat across reward-variance buckets",
    source="RAGEN-2, figure of gradient norms by bucket",
    published="largest over smallest norm of the regularizers: PPO 1.26, GRPO 1.07 (step 1)",
    measured="largest over smallest length",
    rule="For PPO and for GRPO: mean of largest over smallest norm below 1.3, entropy at step 1 and KL at step 11.",
    judge=judge,
    arms=PROBES,
)
