"""C26: the likelihood of correct replies decays before a collapse.

Tested in tests/reproduce/test_claims.py.
"""

import math

from ragen.reproduce.arms import HOT_LAKE, REAL_LAKE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import below, finding
from ragen.reproduce.series import change, halving, series, training_success
from ragen.tracking.names import SOLVED_LOGPROB


def judge(evidence: Evidence) -> Finding:
    folders = evidence.folders("no filter")
    ends = [halving(training_success(folder)) for folder in folders]
    changes = [
        change(series(folder, SOLVED_LOGPROB), before=end) if math.isfinite(end) else math.nan
        for folder, end in zip(folders, ends, strict=True)
    ]
    ruling = below(changes, 0)
    broken = sum(math.isfinite(end) for end in ends)
    ours = f"{broken} of {len(folders)} runs collapse"
    if broken:
        ours += f"; before it the log-probability of a token of a solved episode changes by {ruling.estimate:+.3f}"
    return finding(
        ours,
        (Point(label="change of log-probability", ours=ruling.estimate),),
        ruling,
    )


CLAIM = Claim(
    number=26,
    sentence="The likelihood of correct replies decays before a collapse",
    source="studies of likelihood displacement in GRPO",
    published="shown as curves",
    measured="change of log-probability",
    rule="Of the runs that lose half of their best training success for good: the log-probability of a token of "
    "solved episodes, mean of the ten steps before less that of the first ten, lies below 0. Fewer than "
    "three such runs cannot tell. At `minutes` the learning rate is ten times the usual one.",
    judge=judge,
    arms={"minutes": {"no filter": HOT_LAKE}, "hour": {"no filter": REAL_LAKE}},
)
