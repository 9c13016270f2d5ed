"""C8: mutual information falls before success does, entropy does not.

Tested in tests/reproduce/test_claims.py.
"""

import math

from ragen.reproduce.arms import REAL_LAKE
from ragen.reproduce.claim import THOUGHTS, Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, finding
from ragen.reproduce.series import halving, series, training_success
from ragen.tracking.names import FIRST_TURNS, collapse


def judge(evidence: Evidence) -> Finding:
    leads = []
    for folder in evidence.folders("no filter"):
        fall = halving(training_success(folder))
        information = halving(series(folder, collapse(FIRST_TURNS, "mi_estimate")))
        leads.append(fall - information if math.isfinite(fall) and math.isfinite(information) else math.nan)
    ruling = above(leads, 0)
    known = sum(not math.isnan(lead) for lead in leads)
    return finding(
        f"{known} of {len(leads)} runs lose half of both; information leads by {ruling.estimate:.0f} steps",
        (Point(label="lead in steps", ours=ruling.estimate),),
        ruling,
    )


CLAIM = Claim(
    number=8,
    sentence="Mutual information of prompt and thought falls before success does",
    source="RAGEN-2, diagnostics",
    published="shown as curves, one run",
    measured="steps",
    rule="Of the runs that lose half of both for good: the mean lead of information over success is above 0 steps.",
    judge=judge,
    arms={"hour": {"no filter": REAL_LAKE}},
    not_testable={"minutes": THOUGHTS},
)
