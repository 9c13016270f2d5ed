"""C21: how the loss is averaged alone moves success.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import AGGREGATION, SOKOBAN
from ragen.reproduce.claim import Claim
from ragen.reproduce.rules import judge_gain

CLAIM = Claim(
    number=21,
    sentence="How the loss is averaged alone moves 15 points: over tokens is better than over sequences",
    source="ARLArena, arXiv 2602.21534",
    published="83.9 % averaged over tokens, 68.7 % over sequences",
    measured="success at the end",
    rule="Success of the last validation, by pairs of seeds: higher with token-mean than with "
    "seq-mean-token-mean; it does not hold where the gain is below 0.05.",
    judge=judge_gain(
        "token-mean",
        "seq-mean-token-mean",
        "success with a mean over tokens less that with a mean over sequences",
        {"token-mean": 0.839, "seq-mean-token-mean": 0.687},
    ),
    arms={"minutes": {"token-mean": SOKOBAN, "seq-mean-token-mean": SOKOBAN.but({AGGREGATION: "seq-mean-token-mean"})}},
)
