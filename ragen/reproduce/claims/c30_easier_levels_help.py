"""C30: easier levels in the batch carry training over the zero-reward barrier.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import SOKOBAN, TRAIN, VAL
from ragen.reproduce.claim import Claim
from ragen.reproduce.rules import judge_gain

HARD = SOKOBAN.but(
    {f"{TRAIN}.env_configs.tags": "[LargerSokoban]", f"{VAL}.env_configs.tags": "[LargerSokoban]"}, times=1.2
)
MIXED = HARD.but(
    {f"{TRAIN}.env_configs.tags": "[SimpleSokoban,LargerSokoban]", f"{TRAIN}.env_configs.n_groups": "[4,4]"}
)


CLAIM = Claim(
    number=30,
    sentence="Mixing in easier levels crosses the zero-reward barrier",
    source="studies of curricula for sparse rewards",
    published="shown as curves: nothing is learned from hard levels alone",
    measured="success at the end",
    rule="Success of the last validation on 8x8 rooms with two boxes, by pairs of seeds: higher after training on "
    "those and 6x6 rooms with one box, half each, than after training on those alone; not where the gain is "
    "below 0.05.",
    judge=judge_gain(
        "mixed",
        "hard alone",
        "success on hard levels, trained on both kinds less trained on hard ones",
        {"mixed": None, "hard alone": None},
    ),
    arms={"minutes": {"hard alone": HARD, "mixed": MIXED}},
)
