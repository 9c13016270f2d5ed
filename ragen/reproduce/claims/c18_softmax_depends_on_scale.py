"""C18: what a softmax top-p filter keeps depends on the unit of the rewards.

Tested in tests/reproduce/test_claims.py.
"""

from ragen.algorithms.filter_strategies import FilterSettings
from ragen.config.actor_rollout_ref import TopPMode
from ragen.reproduce.arms import LAKE, SOKOBAN
from ragen.reproduce.claim import Claim, Evidence, Finding, Point
from ragen.reproduce.replays import kept_share
from ragen.reproduce.rules import above, below, finding, share

MODES: tuple[TopPMode, ...] = ("softmax", "linear", "softmax_z")
SCALES = (0.1, 1.0, 10.0)


def judge(evidence: Evidence) -> Finding:
    rulings, points, texts = [], [], []
    for task in evidence.arms:
        folders = evidence.folders(task)
        for mode in MODES:
            top_p = FilterSettings(value=0.9, top_p_prob_mode=mode, include_zero=False)
            shares = [[kept_share(folder, top_p, reward_scale=scale) for scale in SCALES] for folder in folders]
            spread = [max(row) - min(row) for row in shares]
            rulings.append(above(spread, 0.1) if mode == "softmax" else below(spread, 0.05))
            texts.append(f"{task} {mode} {rulings[-1].estimate:.3f}")
            points += [
                Point(label=f"{task} {mode} x{scale:g}", ours=share(column))
                for scale, column in zip(SCALES, zip(*shares, strict=True), strict=True)
            ]
    return finding(
        f"the kept share moves by: {', '.join(texts)} (linear mass has a slack of 0.01 in units of the reward)",
        points,
        *rulings,
    )


CLAIM = Claim(
    number=18,
    sentence="What a softmax top-p filter keeps depends on the scale of the rewards; linear and z-scored ones do not",
    source="our simulation of RAGEN-2's released filter",
    published="share of groups kept by softmax 0.9, zeros out: .43 with Sokoban's rewards, .58 with rewards of 0 and 1",
    measured="share of groups that is kept",
    rule="Saved training episodes, rewards times 0.1, 1 and 10, top-p 0.9, lakes and Sokoban: the kept share moves by "
    "more than 0.1 with softmax, and by less than 0.05 with linear and z-scored mass.",
    judge=judge,
    arms={"minutes": {"lake": LAKE, "Sokoban": SOKOBAN}},
)
