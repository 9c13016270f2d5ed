"""C10: where the environment is mostly noise, filtering by variance gains nothing.

Tested in tests/reproduce/test_claims.py.
"""

from statistics import fmean

from ragen.reproduce.arms import LAKE, PUBLISHED_LAKE, slippery, top_p
from ragen.reproduce.claim import Arm, Claim, Evidence, Finding, Point
from ragen.reproduce.rules import WORTH_FINDING, above, by_seed, finding, mean_success

SLIPS = {"0": 0.06, "0.5": 0.10, "0.8": -0.01}
"""Share of the moves that slip -> the published gain."""


def gains(row: dict[str, float]) -> list[float]:
    return [row[f"filtered, slip {slip}"] - row[f"slip {slip}"] for slip in SLIPS]


def judge(evidence: Evidence) -> Finding:
    table = [gains(row) for row in by_seed(evidence, mean_success)]
    ruling = above([fmean(row[:2]) - row[2] for row in table], 0, margin=WORTH_FINDING)
    points = [
        Point(label=f"slip {slip}", ours=above(list(column), 0).estimate, published=published)
        for (slip, published), column in zip(SLIPS.items(), zip(*table, strict=True), strict=True)
    ]
    return finding(
        f"gain of the filter: {', '.join(f'{point.label} {point.ours:+.3f}' for point in points)}; "
        f"at most half slipping less mostly slipping {ruling.estimate:+.3f}",
        points,
        ruling,
    )


def arms(lake: Arm) -> dict[str, Arm]:
    plain = {f"slip {slip}": slippery(lake, float(slip)) for slip in SLIPS}
    return plain | {f"filtered, {name}": top_p(arm, 0.9) for name, arm in plain.items()}


CLAIM = Claim(
    number=10,
    sentence="The gain of the filter vanishes where the environment is mostly noise",
    source="RAGEN-2, FrozenLake with stochastic moves",
    published="gain of top-p: +.06 at no slip, +.10 at one half, -.01 at 80 %",
    measured="gain of the filter",
    rule="Mean success over training with top-p 0.9 less without filter, by seeds: the mean gain at slips of 0 "
    "and 0.5 lies above the gain at 0.8; it does not hold where the difference is below 0.05.",
    judge=judge,
    arms={"minutes": arms(LAKE), "day": arms(PUBLISHED_LAKE)},
)
