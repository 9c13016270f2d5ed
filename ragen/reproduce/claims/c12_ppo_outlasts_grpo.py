"""C12: PPO lasts longer than GRPO on Sokoban and the bandit, not on slippery lakes.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import HOT_BANDIT, HOT_LAKE, HOT_SOKOBAN, PPO, slippery
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.rules import WORTH_FINDING, above, below, by_seed, finding, mean_success

TASKS = {"Sokoban": HOT_SOKOBAN, "bandit": HOT_BANDIT, "slippery lake": slippery(HOT_LAKE, 0.2)}


def judge(evidence: Evidence) -> Finding:
    table = by_seed(evidence, mean_success)
    gaps = {task: [row[f"{task}, PPO"] - row[f"{task}, GRPO"] for row in table] for task in TASKS}
    rulings = {
        task: below(values, 0) if task == "slippery lake" else above(values, 0, margin=WORTH_FINDING)
        for task, values in gaps.items()
    }
    return finding(
        "PPO less GRPO, mean success over training: "
        + ", ".join(f"{task} {ruling.estimate:+.3f}" for task, ruling in rulings.items()),
        [Point(label=task, ours=ruling.estimate) for task, ruling in rulings.items()],
        *rulings.values(),
    )


CLAIM = Claim(
    number=12,
    sentence="PPO outlasts GRPO on Sokoban and the bandit, and GRPO outlasts PPO on slippery FrozenLake",
    source="RAGEN, baseline collapse",
    published="collapse of GRPO at step 20 (bandit) and 10 (Sokoban), of PPO at 100 and 50; on FrozenLake GRPO "
    "lasts longer",
    measured="PPO less GRPO, mean success",
    rule="Mean validation success over the whole training without early stopping, by pairs of seeds: PPO above "
    "GRPO on Sokoban and on the bandit, below it on a lake where a fifth of the moves slip. At `minutes` the "
    "learning rate is ten times the usual one.",
    judge=judge,
    arms={
        "minutes": {f"{task}, GRPO": arm for task, arm in TASKS.items()}
        | {f"{task}, PPO": arm.but(PPO, times=1.4) for task, arm in TASKS.items()}
    },
)
