"""C14: five actions a turn beat one or two.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import ACTIONS_PER_TURN, LAKE, PUBLISHED_SOKOBAN, smallest
from ragen.reproduce.claim import Arm, Claim, Evidence, Finding
from ragen.reproduce.rules import WORTH_FINDING, above, by_seed, final, finding, table_points

PUBLISHED = {"1": 0.117, "2": 0.184, "5": 0.211}
"""Actions a turn -> success on FrozenLake."""


def judge(evidence: Evidence) -> Finding:
    table = by_seed(evidence, final)
    over_one, over_two = (
        above([row["5"] - row[name] for row in table], 0, margin=WORTH_FINDING) for name in ("1", "2")
    )
    return finding(
        f"success with five actions a turn less that with one {over_one.estimate:+.3f}, with two "
        f"{over_two.estimate:+.3f}",
        table_points(table, PUBLISHED),
        over_one,
        over_two,
    )


def arms(base: Arm) -> dict[str, Arm]:
    return {name: base.but({ACTIONS_PER_TURN: name}) for name in PUBLISHED}


CLAIM = Claim(
    number=14,
    sentence="Five or six actions a turn beat one or two",
    source="RAGEN, table 3",
    published="FrozenLake: 11.7 % with one, 18.4 % with two, 21.1 % with five; Sokoban 12.1, 16.4, 28.1 %",
    measured="success at the end",
    rule="Success of the last validation, by pairs of seeds: higher with five actions a turn than with one and "
    "than with two; it does not hold where one of the two gains is below 0.05.",
    judge=judge,
    arms={"minutes": arms(LAKE), "day": arms(smallest(PUBLISHED_SOKOBAN))},
)
