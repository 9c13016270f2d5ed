"""C5: filtering groups by reward variance delays or removes collapse.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import HOT_LAKE, PUBLISHED_LAKE, PUBLISHED_SOKOBAN, REAL_LAKE, filters, main_table, top_k
from ragen.reproduce.claim import Claim, Evidence, Finding
from ragen.reproduce.rules import WORTH_FINDING, any_of, arm_points, better, describe, finding, mean_success

PAIRS = {"zeros dropped": "no filter", "top-p 0.9": "no filter", "top-k 0.25": "no filter"}
TABLE = {"Sokoban, filtered": "Sokoban", "FrozenLake, filtered": "FrozenLake"}
PUBLISHED = {"Sokoban": 0.033, "Sokoban, filtered": 0.262, "FrozenLake": 0.195, "FrozenLake, filtered": 0.195}


def judge(evidence: Evidence) -> Finding:
    pairs = {one: other for one, other in (PAIRS | TABLE).items() if one in evidence.arms}
    rulings = {}
    for baseline in dict.fromkeys(pairs.values()):
        arms = [one for one, other in pairs.items() if other == baseline]
        rulings |= better(evidence, arms, baseline, mean_success, margin=WORTH_FINDING)
    return finding(
        f"mean success over training, less that without filter: {describe(rulings)}",
        arm_points(evidence, {name: PUBLISHED.get(name) for name in evidence.arms}, mean_success),
        *rulings.values(),
        of=any_of,
    )


CLAIM = Claim(
    number=5,
    sentence="Filtering groups by reward variance delays or removes collapse",
    source="RAGEN, figure 7; RAGEN-2, main table (PPO, 0.5B: Sokoban 3.3 -> 26.2, FrozenLake 19.5 -> 19.5)",
    published="PPO on FrozenLake: collapse at step 100 without filter, at 140 with 75 % kept, never with 50 %",
    measured="mean success over training",
    rule="Mean validation success over the whole training, by pairs of seeds, corrected by Holm: some filter is "
    "better than none. It does not hold where no filter is better by 0.05. At `minutes` the learning rate is "
    "ten times the usual one.",
    judge=judge,
    arms={
        "minutes": filters(HOT_LAKE) | {"top-k 0.25": top_k(HOT_LAKE, 0.25)},
        "hour": filters(REAL_LAKE),
        "day": main_table(PUBLISHED_SOKOBAN, "Sokoban") | main_table(PUBLISHED_LAKE, "FrozenLake"),
    },
)
