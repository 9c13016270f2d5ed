"""C16: thoughts help on arms whose names mean the opposite.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import REAL_BANDIT
from ragen.reproduce.claim import THOUGHTS, Claim
from ragen.reproduce.rules import judge_gain

CLAIM = Claim(
    number=16,
    sentence="On the bandit thoughts help with arms that training never shows",
    source="RAGEN, table 4 (reversed arms)",
    published="67.6 % with thoughts, 56.3 % without",
    measured="success at the end",
    rule="Success of the last validation on unseen names, by pairs of seeds: with thoughts higher by more than 0.05.",
    judge=judge_gain(
        "think",
        "no think",
        "success on names that training never shows, with thoughts less without",
        {"think": 0.676, "no think": 0.5625},
        bound=0.05,
        margin=0,
    ),
    arms={"hour": {"think": REAL_BANDIT, "no think": REAL_BANDIT.but({"agent_proxy.enable_think": "False"})}},
    not_testable={"minutes": THOUGHTS},
)
