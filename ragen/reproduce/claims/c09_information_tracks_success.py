"""C9: the z-scored information tracks success better than entropy does.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import REAL_LAKE, filters
from ragen.reproduce.claim import THOUGHTS, Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, finding
from ragen.reproduce.series import rank_correlation, series, validation_success
from ragen.tracking.names import FIRST_TURNS, collapse, join


def judge(evidence: Evidence) -> Finding:
    folders = [folder for arm in evidence.arms for folder in evidence.folders(arm)]
    names = (join(FIRST_TURNS, "mi_zscore"), collapse(FIRST_TURNS, "reasoning_entropy_est"))
    found = [
        [rank_correlation(series(folder, name), validation_success(folder)) for name in names] for folder in folders
    ]
    ruling = above([information - entropy for information, entropy in found], 0)
    information, entropy = (above(list(column), 0).estimate for column in zip(*found, strict=True))
    return finding(
        f"rank correlation with success: information {information:.2f}, entropy {entropy:.2f}; their difference "
        f"{ruling.estimate:+.2f}",
        (
            Point(label="information", ours=information, published=0.39),
            Point(label="entropy", ours=entropy, published=-0.11),
        ),
        ruling,
    )


CLAIM = Claim(
    number=9,
    sentence="The z-scored information of prompt and thought correlates with success better than entropy does",
    source="RAGEN-2, table of correlations",
    published="Spearman's correlation with success: +.39 (z-scored information), -.11 (reasoning entropy)",
    measured="rank correlation with success",
    rule="Within each run, over its validations: the mean difference of the two rank correlations is above 0.",
    judge=judge,
    arms={"hour": filters(REAL_LAKE)},
    not_testable={"minutes": THOUGHTS},
)
