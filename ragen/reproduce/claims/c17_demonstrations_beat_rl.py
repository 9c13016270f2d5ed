"""C17: supervised training on the solver's traces beats reinforcement learning on Sokoban.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import SOKOBAN, TAUGHT_SOKOBAN
from ragen.reproduce.claim import Claim
from ragen.reproduce.rules import judge_gain

CLAIM = Claim(
    number=17,
    sentence="Supervised training on the solver's traces beats reinforcement learning on Sokoban",
    source="RAGEN, supervised baseline",
    published="74.6 % with BFS traces, 20.3 % with StarPO-S",
    measured="success at the end",
    rule="Success of the last validation from the same start, by pairs of seeds: higher after three epochs on "
    "1000 solved levels than after 40 steps of GRPO.",
    judge=judge_gain(
        "SFT", "RL", "success after demonstrations less that after reinforcement learning", {"SFT": 0.746, "RL": 0.203}
    ),
    arms={"minutes": {"SFT": TAUGHT_SOKOBAN, "RL": SOKOBAN}},
)
