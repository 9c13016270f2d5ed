"""C7: KL and entropy bonuses lower the information between prompt and thought.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.reproduce.arms import REAL_LAKE, top_p
from ragen.reproduce.claim import THOUGHTS, Claim, Evidence, Finding, Point
from ragen.reproduce.rules import above, finding
from ragen.reproduce.series import series
from ragen.tracking.names import FIRST_TURNS, collapse

KL = {"actor_rollout_ref.actor.use_kl_loss": "True", "actor_rollout_ref.actor.kl_loss_coef": "0.1"}
ENTROPY = {"actor_rollout_ref.actor.entropy_coeff": "0.01"}


def judge(evidence: Evidence) -> Finding:
    name = collapse(FIRST_TURNS, "retrieval_accuracy")
    last = {arm: [list(series(folder, name).values())[-1] for folder in evidence.folders(arm)] for arm in evidence.arms}
    rulings = {
        arm: above([one - two for one, two in zip(last["top-p 0.9"], last[arm], strict=True)], 0)
        for arm in ("KL 0.1", "entropy 0.01")
    }
    texts = [f"{arm} {ruling.estimate:+.3f}" for arm, ruling in rulings.items()]
    return finding(
        f"retrieval accuracy with the filter, less that with {', '.join(texts)}",
        [Point(label=arm, ours=above(values, 0).estimate) for arm, values in last.items()],
        *rulings.values(),
    )


CLAIM = Claim(
    number=7,
    sentence="KL and entropy bonuses lower the information between prompt and thought, and do not fix collapse",
    source="RAGEN-2, intervention sweeps",
    published="retrieval accuracy about .6 with top-p 0.9, 0 to .15 with KL 3e-4, .2 with entropy 3e-3 (200 steps)",
    measured="retrieval accuracy",
    rule="Retrieval accuracy of first turns at the last step, by pairs of seeds: higher with top-p 0.9 than with "
    "a KL of 0.1 and than with an entropy bonus of 0.01.",
    judge=judge,
    arms={
        "hour": {
            "top-p 0.9": top_p(REAL_LAKE, 0.9),
            "KL 0.1": REAL_LAKE.but(KL),
            "entropy 0.01": REAL_LAKE.but(ENTROPY),
        }
    },
    not_testable={"minutes": THOUGHTS},
)
