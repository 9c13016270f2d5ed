"""C27: entropy oscillates over the turns of an episode.

Tested in tests/reproduce/test_claims.py.
"""

from itertools import pairwise
from pathlib import Path
from statistics import fmean

from ragen.reproduce.arms import LAKE, REAL_LAKE
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, finding
from ragen.reproduce.series import series
from ragen.tracking.names import turn_entropy

NUM_TURNS = 5


def over_turns(folder: Path) -> list[float]:
    """[turns] The mean over the training."""
    found = [series(folder, turn_entropy(turn)) for turn in range(1, NUM_TURNS + 1)]
    return [fmean(each.values()) for each in found if each]


def turning_points(values: list[float]) -> int:
    """[1, 2, 1, 3, 4] -> 2"""
    rises = [later > earlier for earlier, later in pairwise(values)]
    return sum(one != other for one, other in pairwise(rises))


def judge(evidence: Evidence) -> Finding:
    found = [over_turns(folder) for folder in evidence.folders("no filter")]
    ruling = above([float(turning_points(each)) for each in found], 1.5)
    points = [
        Point(label=f"turn {turn}", ours=above(list(column), 0).estimate)
        for turn, column in enumerate(zip(*found, strict=True), 1)
    ]
    return finding(
        f"{ruling.estimate:.1f} turning points of entropy over five turns, of three that are possible: "
        + ", ".join(f"{point.ours.mean:.2f}" for point in points),
        points,
        ruling,
    )


CLAIM = Claim(
    number=27,
    sentence="Entropy oscillates over the turns of an episode",
    source="studies of entropy in multi-turn training",
    published="shown as curves",
    measured="entropy",
    rule="Entropy by turn, averaged over the training: more than 1.5 turning points on average over the seeds.",
    judge=judge,
    arms={"minutes": {"no filter": LAKE}, "hour": {"no filter": REAL_LAKE}},
)
