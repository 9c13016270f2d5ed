"""C4: without a filter reward variance falls first, and success after it.

Tested in tests/reproduce/test_claims.py.
"""

import math

from ragen.reproduce.arms import HOT_LAKE, REAL_LAKE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import share_above
from ragen.reproduce.series import halving, series, training_success
from ragen.tracking.names import IN_GROUP_REWARD_STD


def judge(evidence: Evidence) -> Finding:
    folders = evidence.folders("no filter")
    falls = [halving(training_success(folder)) for folder in folders]
    spreads = [halving(series(folder, IN_GROUP_REWARD_STD)) for folder in folders]
    broken = [math.isfinite(step) for step in falls]
    warned = [spread < fall for spread, fall in zip(spreads, falls, strict=True)]
    collapse = share_above(sum(broken), len(folders), 0.5)
    order = share_above(sum(was for was, is_broken in zip(warned, broken, strict=True) if is_broken), sum(broken), 0.5)
    verdict = collapse.verdict if collapse.verdict != "holds" else order.verdict
    ruling = collapse if collapse.verdict != "holds" else order
    ours = f"{sum(broken)} of {len(folders)} runs lose half of their best success for good"
    if any(broken):
        steps = ", ".join(f"{fall:g} ({spread:g})" for fall, spread in zip(falls, spreads, strict=True))
        ours += f"; the variance has halved before in {sum(warned)} of them; steps of success (of variance): "
        ours += steps.replace("inf", "never")
    return Finding(
        verdict=verdict,
        ours=ours,
        points=(
            Point(label="runs that collapse", ours=collapse.estimate),
            Point(label="variance falls first", ours=order.estimate),
        ),
        seeds_needed=ruling.seeds_needed,
    )


CLAIM = Claim(
    number=4,
    sentence="Without a filter runs collapse: reward variance falls first, success after it",
    source="RAGEN, early-warning signs; RAGEN-2, dynamics without filter",
    published="FrozenLake, PPO: deviation falls at step 40, success at 90; 7.5 of 8 groups without variance at step 85",
    measured="share of runs",
    rule="More than half of the runs lose half of their best training success for good (moving mean of 5 steps), "
    "and in more than half of these the in-group reward deviation has halved at an earlier step; Wilson's "
    "intervals. At `minutes` the learning rate is ten times the usual one.",
    judge=judge,
    arms={"minutes": {"no filter": HOT_LAKE}, "hour": {"no filter": REAL_LAKE}},
)
