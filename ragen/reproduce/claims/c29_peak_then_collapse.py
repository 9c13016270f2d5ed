"""C29: a run peaks and then falls, so the best validation alone flatters it.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import HOT_LAKE, REAL_LAKE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, fall, finding, share


def judge(evidence: Evidence) -> Finding:
    curves = evidence.curves("no filter")
    ruling = above([fall(curve) for curve in curves], 0.1)
    best, last = (share([getattr(curve, name) for curve in curves]) for name in ("best", "final"))
    return finding(
        f"best validation {best:.3f}, last one {last:.3f}: a fall of {ruling.estimate:.3f}",
        (Point(label="best", ours=best), Point(label="final", ours=last)),
        ruling,
    )


CLAIM = Claim(
    number=29,
    sentence="Runs peak and then collapse: the final success belongs beside the best",
    source="RAGEN and RAGEN-2, curves; tables do not say which they report",
    published="entropy 3e-3: .21 at step 70, dead by step 150",
    measured="validation success",
    rule="Best less last validation without early stopping: above 0.1 on average over the seeds (the best of nine "
    "noisy validations of a flat curve lies about 0.06 above the last). At `minutes` the learning rate is "
    "ten times the usual one.",
    judge=judge,
    arms={"minutes": {"no filter": HOT_LAKE}, "hour": {"no filter": REAL_LAKE}},
)
