"""C24: many groups have no variance, and they can be told early.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import LAKE, SOKOBAN
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.replays import decide_early
from ragen.reproduce.rules import above, below, finding, share


def judge(evidence: Evidence) -> Finding:
    rulings, points, texts = [], [], []
    for task in evidence.arms:
        found = [decide_early(folder) for folder in evidence.folders(task)]
        flat, saved, lost = (list(column) for column in zip(*found, strict=True))
        rulings += [above(flat, 0.3), above(saved, 0.1), below(lost, 0.1)]
        names = ("no variance", "tokens saved", "signal lost")
        for name, values in zip(names, (flat, saved, lost), strict=True):
            published = 0.4 if name == "no variance" else None
            points.append(Point(label=f"{task} {name}", ours=share(values), published=published))
            texts.append(f"{points[-1].label} {points[-1].ours:.2f}")
    return finding(", ".join(texts), points, *rulings)


CLAIM = Claim(
    number=24,
    sentence="About 40 % of the groups have no variance, and deciding early saves time",
    source="studies of zero-variance groups",
    published="40 % of the groups",
    measured="share",
    rule="Saved training episodes of lakes and of Sokoban, groups of 8: more than 30 % have no variance, and giving up "
    "a group whose first four episodes are alike saves more than 10 % of the tokens for less than 10 % of the groups "
    "with variance.",
    judge=judge,
    arms={"minutes": {"lake": LAKE, "Sokoban": SOKOBAN}},
)
