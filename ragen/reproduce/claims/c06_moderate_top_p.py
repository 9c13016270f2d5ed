"""C6: a moderate top-p is best.

Tested in tests/reproduce/test_claims.py.
"""

from statistics import fmean

from ragen.reproduce.arms import HOT_LAKE, PUBLISHED_SOKOBAN, top_p
from ragen.reproduce.claim import Claim, Evidence, Finding
from ragen.reproduce.rules import WORTH_FINDING, above, by_seed, finding, mean_success, table_points

PUBLISHED = {"no filter": 0.09, "0.98": 0.365, "0.9": 0.309, "0.8": 0.299, "0.6": 0.186, "0.4": 0.209}
"""Validation success at step 400; without filter read off another figure."""
MODERATE, STRONG = ("0.98", "0.9", "0.8"), ("0.6", "0.4")


def judge(evidence: Evidence) -> Finding:
    table = by_seed(evidence, mean_success)
    moderate = [fmean(row[name] for name in MODERATE) for row in table]
    strong = [fmean(row[name] for name in STRONG) for row in table]
    over_none = above(
        [one - row["no filter"] for one, row in zip(moderate, table, strict=True)], 0, margin=WORTH_FINDING
    )
    over_strong = above([one - two for one, two in zip(moderate, strong, strict=True)], 0, margin=WORTH_FINDING)
    return finding(
        f"mean success over training: moderate less none {over_none.estimate:+.3f}, "
        f"moderate less strong {over_strong.estimate:+.3f}",
        table_points(table, PUBLISHED),
        over_none,
        over_strong,
    )


CLAIM = Claim(
    number=6,
    sentence="A moderate top-p (0.8 to 0.98) is better than none and than a strong one (0.6 and below)",
    source="RAGEN-2, heat map of the filter sweep, one run a value",
    published="success at step 400: .365, .309, .299 with 0.98, 0.9, 0.8; .186, .209 with 0.6, 0.4; .09 without filter",
    measured="mean success over training",
    rule="Mean validation success over the whole training, by seeds: the mean of 0.98, 0.9 and 0.8 lies above no "
    "filter and above the mean of 0.6 and 0.4; it does not hold where one of the two is below 0.05. At "
    "`minutes` the learning rate is ten times the usual one.",
    judge=judge,
    arms={
        "minutes": {"no filter": HOT_LAKE} | {name: top_p(HOT_LAKE, float(name)) for name in (*MODERATE, *STRONG)},
        "day": {"no filter": PUBLISHED_SOKOBAN}
        | {name: top_p(PUBLISHED_SOKOBAN, float(name), mode="softmax") for name in (*MODERATE, *STRONG)},
    },
)
