"""C28: the form of replies breaks while the skill remains.

Tested in tests/reproduce/test_claims.py.
"""

from pathlib import Path

from ragen.reproduce.arms import HOT_LAKE, REAL_LAKE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, finding, share
from ragen.reproduce.series import series
from ragen.tracking.names import FORMAT_VALID, LENIENT_VALID, VALIDATION, join

STRICT = {"agent_proxy.answer_parsing": "strict"}


def worst(folder: Path) -> tuple[float, float]:
    """Share of valid turns, strictly and leniently, at the validation where the strict one is lowest."""
    strict, lenient = (series(folder, join(VALIDATION, name)) for name in (FORMAT_VALID, LENIENT_VALID))
    step = min(strict, key=lambda each: strict[each])
    return strict[step], lenient[step]


def judge(evidence: Evidence) -> Finding:
    found = [worst(folder) for folder in evidence.folders("no filter")]
    strict, lenient = (share(list(column)) for column in zip(*found, strict=True))
    ruling = above([two - one for one, two in found], 0.1)
    return finding(
        f"where strict validity is lowest it is {strict:.2f}, and lenient validity {lenient:.2f}",
        (Point(label="strict", ours=strict), Point(label="lenient", ours=lenient)),
        ruling,
    )


CLAIM = Claim(
    number=28,
    sentence="The form of replies breaks while the skill remains",
    source="reports of collapsed runs whose actions are still there behind a broken form",
    published="shown as examples",
    measured="share of valid turns",
    rule="At the validation with the fewest valid turns, by seeds: lenient parsing accepts at least 0.1 more of "
    "the turns than strict parsing does. At `minutes` the learning rate is ten times the usual one.",
    judge=judge,
    arms={"minutes": {"no filter": HOT_LAKE}, "hour": {"no filter": REAL_LAKE.but(STRICT)}},
)
