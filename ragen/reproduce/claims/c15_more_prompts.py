"""C15: more prompts with fewer replies each generalize better.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import LAKE, TRAIN
from ragen.reproduce.claim import Arm, Claim, Evidence, Finding
from ragen.reproduce.rules import WORTH_FINDING, above, by_seed, final, finding, table_points

PUBLISHED = {"4": 0.215, "8": 0.172, "16": 0.195}
"""Replies a prompt -> success on FrozenLake."""
EPISODES = 64


def judge(evidence: Evidence) -> Finding:
    table = by_seed(evidence, final)
    ruling = above([row["4"] - row["16"] for row in table], 0, margin=WORTH_FINDING)
    return finding(
        f"success with 4 replies a prompt less that with 16: {ruling.estimate:+.3f}",
        table_points(table, PUBLISHED),
        ruling,
    )


def grouped(size: str) -> Arm:
    return LAKE.but({f"{TRAIN}.group_size": size, f"{TRAIN}.env_groups": str(EPISODES // int(size))})


CLAIM = Claim(
    number=15,
    sentence="Four replies a prompt with more prompts generalize better than sixteen",
    source="RAGEN, table 2",
    published="FrozenLake: 21.5 % with 4, 17.2 % with 8, 19.5 % with 16; Sokoban 20.7, 20.3, 20.3 %",
    measured="success at the end",
    rule="Success of the last validation, 64 episodes a step, by pairs of seeds: higher with groups of 4 than "
    "with groups of 16; it does not hold where the gain is below 0.05.",
    judge=judge,
    arms={"minutes": {size: grouped(size) for size in PUBLISHED}},
)
