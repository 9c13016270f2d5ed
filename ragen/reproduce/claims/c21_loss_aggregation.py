"""C21: how the loss is averaged alone moves success.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import AGGREGATION, SOKOBAN
from ragen.reproduce.claim import Claim, Evidence, Finding
from ragen.reproduce.rules import arm_points, gain


def judge(evidence: Evidence) -> Finding:
    ruling = gain(evidence, "token-mean", "seq-mean-token-mean")
    return Finding(
        verdict=ruling.verdict,
        ours=f"success with a mean over tokens less that with a mean over sequences: {ruling.estimate:+.3f}",
        points=arm_points(evidence, {"token-mean": 0.839, "seq-mean-token-mean": 0.687}),
        seeds_needed=ruling.seeds_needed,
    )


CLAIM = Claim(
    number=21,
    sentence="How the loss is averaged alone moves 15 points: over tokens is better than over sequences",
    source="ARLArena, arXiv 2602.21534",
    published="83.9 % averaged over tokens, 68.7 % over sequences",
    rule="Success of the last validation, by pairs of seeds: higher with token-mean than with "
    "seq-mean-token-mean; it does not hold where the gain is below 0.05.",
    judge=judge,
    arms={"minutes": {"token-mean": SOKOBAN, "seq-mean-token-mean": SOKOBAN.but({AGGREGATION: "seq-mean-token-mean"})}},
)
