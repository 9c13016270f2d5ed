"""C11: filtering cuts the time of updates in proportion to what is kept.

Tested in tests/reproduce/test_claims.py.
"""

from pathlib import Path
from statistics import fmean

from ragen.reproduce.arms import LAKE, top_k, top_p
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import below, finding
from ragen.reproduce.series import series
from ragen.tracking.names import KEPT_RATIO, seconds


def update_time(folder: Path) -> float:
    """Seconds a step; one without any group left takes none, and the first one, which warms up, does not count."""
    times = series(folder, seconds("update_actor"))
    return fmean(times.get(step, 0.0) for step in list(series(folder, KEPT_RATIO))[1:])


def judge(evidence: Evidence) -> Finding:
    whole = [update_time(folder) for folder in evidence.folders("no filter")]
    rulings, points, texts = [], [], []
    for arm in ("top-p 0.9", "top-k 0.25"):
        folders = evidence.folders(arm)
        kept = [fmean(list(series(folder, KEPT_RATIO).values())[1:]) for folder in folders]
        times = [update_time(folder) / all_of_it for folder, all_of_it in zip(folders, whole, strict=True)]
        ruling = below([abs(time / share - 1) for time, share in zip(times, kept, strict=True)], 0.1)
        rulings.append(ruling)
        points += [
            Point(label=f"{arm} kept", ours=below(kept, 1).estimate),
            Point(label=f"{arm} time", ours=below(times, 1).estimate),
        ]
        texts.append(
            f"{arm}: {fmean(kept):.2f} of the groups, {fmean(times):.2f} of the time, off by {ruling.estimate:.2f}"
        )
    return finding("; ".join(texts), points, *rulings)


CLAIM = Claim(
    number=11,
    sentence="Filtering cuts the time of updates in proportion to the kept groups",
    source="RAGEN-2, step time; RAGEN's figure is not proportional",
    published="step time -26 to -41 %",
    measured="share",
    rule="Update time with the filter over that without, by pairs of seeds: off the share of kept groups by less "
    "than 10 %, for top-p 0.9 and for top-k 0.25.",
    judge=judge,
    arms={"minutes": {"no filter": LAKE, "top-p 0.9": top_p(LAKE, 0.9), "top-k 0.25": top_k(LAKE, 0.25)}},
)
