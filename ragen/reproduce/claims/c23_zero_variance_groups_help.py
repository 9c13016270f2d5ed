"""C23: groups without variance help when they are used, against dropping them (C5).

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import LAKE, ZERO_DROPPED
from ragen.reproduce.claim import Claim, Evidence, Finding
from ragen.reproduce.rules import arm_points, finding, gain


def judge(evidence: Evidence) -> Finding:
    over_dropped, over_none = (gain(evidence, "RL-ZVP", other) for other in ("zeros dropped", "no filter"))
    return finding(
        f"success with RL-ZVP less that with such groups dropped {over_dropped.estimate:+.3f}, "
        f"less that with them kept and silent {over_none.estimate:+.3f}",
        arm_points(evidence, dict.fromkeys(evidence.arms)),
        over_dropped,
    )


CLAIM = Claim(
    number=23,
    sentence="Groups without variance help when they are used (RL-ZVP), more than dropping them does",
    source="RL-ZVP, arXiv 2509.21880, mathematics",
    published="up to +8.6 points over GRPO that drops them",
    measured="success at the end",
    rule="Success of the last validation, by pairs of seeds: higher with RL-ZVP than with GRPO that drops groups "
    "without variance; it does not hold where the gain is below 0.05.",
    judge=judge,
    arms={
        "minutes": {
            "RL-ZVP": LAKE.but({"algorithm.adv_estimator": "ragen.reproduce.rl_zvp:rl_zvp"}),
            "zeros dropped": LAKE.but(ZERO_DROPPED),
            "no filter": LAKE,
        }
    },
)
