"""C13: replies get shorter during training.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import REAL_LAKE
from ragen.reproduce.claim import THOUGHTS, Claim, Evidence, Finding, Point
from ragen.reproduce.rules import below, finding
from ragen.reproduce.series import series, slope
from ragen.tracking.names import RESPONSE_LENGTH, TRAIN, join


def judge(evidence: Evidence) -> Finding:
    lengths = [series(folder, join(TRAIN, RESPONSE_LENGTH)) for folder in evidence.folders("no filter")]
    changes = [100 * slope(each) / next(iter(each.values())) for each in lengths]
    ruling = below([100 * change for change in changes], 0)
    return finding(
        f"sampled tokens of an episode change by {ruling.estimate:+.0f} % in 100 steps",
        (Point(label="change in 100 steps, %", ours=ruling.estimate, published=-8),),
        ruling,
    )


CLAIM = Claim(
    number=13,
    sentence="Reasoning gets shorter during reinforcement learning",
    source="RAGEN; RAGEN-2, reasoning length",
    published="-16 % on Sokoban without filter, -29 % on FrozenLake (200 steps)",
    measured="change of length, %",
    rule="Slope of the sampled tokens of a training episode over the steps: below 0.",
    judge=judge,
    arms={"hour": {"no filter": REAL_LAKE}},
    not_testable={"minutes": THOUGHTS},
)
