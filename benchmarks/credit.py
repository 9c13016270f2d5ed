"""Credit, proven: the bias and noise of every estimator against exact policy gradients of small decision processes.

    python benchmarks/credit.py                     # the tables of docs/algorithms.md; about three minutes
    python benchmarks/credit.py --exact             # those that are enumerated only; seconds
    python benchmarks/credit.py --batches 1000      # narrower bands

The policy is a table of logits, so its gradient is known: the expected reward is a finite sum over all episodes, and it
is differentiated as such. The estimators are those of a training run: episodes become samples, a batch, rewards and
advantages in the trainer's own `Scorer`, with a critic and a reference that are tables, too. What an update would
follow, sum over tokens of A * grad log-prob, is compared with the exact gradient:

factor  the part of the mean that points along the exact gradient, over its length; 1 is right
angle   between the mean and the exact gradient, in degrees; 0 is right, 90 is no signal, 180 the opposite
noise   the standard deviation of one batch, sqrt(trace of its covariance), over the length of the mean

Exact: every group of two episodes, weighted by its probability. Drawn: batches of 4 groups of 8 episodes, the same for
all estimators, with 95 % bands. The mean of the batches lies in a ball around the true one, whose radius follows from
their covariance; the band of the angle holds every angle in that ball.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parts.decisions import PROCESSES
from parts.laboratory import BETA, UP_TO_A_FACTOR, Arm, Laboratory

EVERYWHERE = tuple(PROCESSES)
STOPPING = ("stopping bandit",)
NUM_BATCHES = 400

NO_STD = {"algorithm.norm_adv_by_std_in_grpo": False}
LENGTH_WEIGHT = {"actor_rollout_ref.actor.grpo_advantage_length_weight": True}
BI_LEVEL = {"algorithm.bi_level_gae": True}
UNDISCOUNTED = {"algorithm.high_level_gamma": 1.0}
ROW_PER_TURN = {"agent_proxy.context_window_mode": "single_turn"}
HALF = {"algorithm.lam": 0.5}
KL = {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": BETA, "algorithm.kl_penalty": "k1"}


def arm(estimator: str, settings: dict[str, Any] | None = None, **claims: Any) -> Arm:
    return Arm(settings={"algorithm.adv_estimator": estimator} | (settings or {}), **claims)


def kl_by(name: str) -> dict[str, Any]:
    return KL | {"algorithm.kl_penalty": name}


def weighed(mode: str) -> dict[str, Any]:
    return {"actor_rollout_ref.actor.loss_agg_mode": mode}


REWARD_ARMS = {
    "`arpo`": arm("arpo"),
    "`rloo`": arm("rloo"),
    "`rloo`, a row per turn": arm("rloo", ROW_PER_TURN),
    "`grpo` without std": arm("grpo", NO_STD, claim=UP_TO_A_FACTOR),
    "`grpo`": arm("grpo", biased_in=EVERYWHERE),
    "`grpo`, soft_advantage_reweight": arm(
        "grpo", {"algorithm.soft_advantage_reweight": True}, biased_in=EVERYWHERE, is_per_batch=True
    ),
    "`grpo` without std, grpo_advantage_length_weight": arm(
        "grpo", NO_STD | LENGTH_WEIGHT, claim=UP_TO_A_FACTOR, biased_in=STOPPING, is_per_batch=True
    ),
    "`brpo`": arm("brpo", biased_in=EVERYWHERE, is_per_batch=True),
    "`reinforce_plus_plus`, not whitened": arm("reinforce_plus_plus", is_raw=True),
    "`reinforce_plus_plus`": arm("reinforce_plus_plus", biased_in=EVERYWHERE, is_per_batch=True),
    "`reinforce_plus_plus_baseline`": arm("reinforce_plus_plus_baseline", biased_in=EVERYWHERE, is_per_batch=True),
    "`gae`, values 0, not whitened": arm("gae", is_raw=True, has_critic=False),
    "`gae`, not whitened": arm("gae", is_raw=True),
    "`gae`, a row per turn, not whitened": arm("gae", ROW_PER_TURN, is_raw=True),
    "`gae`": arm("gae", biased_in=EVERYWHERE, is_per_batch=True),
    "`gae`, λ = .5, not whitened": arm("gae", HALF, is_raw=True),
    "`gae`, λ = .5, values 0, not whitened": arm("gae", HALF, biased_in=EVERYWHERE, is_raw=True, has_critic=False),
    "`gae`, γ = .9, not whitened": arm("gae", {"algorithm.gamma": 0.9}, biased_in=EVERYWHERE, is_raw=True),
    "bi-level, γ_H = 1, not whitened": arm("gae", BI_LEVEL | UNDISCOUNTED, is_raw=True),
    "bi-level, γ_H = 1, values 0, not whitened": arm("gae", BI_LEVEL | UNDISCOUNTED, is_raw=True, has_critic=False),
    "bi-level, γ_H = 1, λ = .5, not whitened": arm(
        "gae", BI_LEVEL | UNDISCOUNTED | HALF, biased_in=STOPPING, is_raw=True
    ),
    "bi-level, γ_H = .95, not whitened": arm("gae", BI_LEVEL, biased_in=EVERYWHERE, is_raw=True),
    "bi-level, γ_H = .95": arm("gae", BI_LEVEL, biased_in=EVERYWHERE, is_per_batch=True),
    "`gigpo`": arm("gigpo", biased_in=EVERYWHERE),
    "`gigpo` without std, γ_H = 1": arm("gigpo", NO_STD | UNDISCOUNTED, biased_in=EVERYWHERE),
    "mean per turn index": arm(
        "parts.turn_baselines:per_turn_index", UNDISCOUNTED, claim=UP_TO_A_FACTOR, biased_in=STOPPING
    ),
    "turn-wise leave-one-out": arm("parts.turn_baselines:turn_leave_one_out", UNDISCOUNTED),
}

KL_ARMS = {
    "`rloo`, k1": arm("rloo", KL),
    "`rloo`, k2": arm("rloo", kl_by("k2"), biased_in=EVERYWHERE),
    "`rloo`, k3": arm("rloo", kl_by("k3"), biased_in=EVERYWHERE),
    "`rloo`, abs": arm("rloo", kl_by("abs"), biased_in=EVERYWHERE),
    "`rloo`, k1, a row per turn": arm("rloo", KL | ROW_PER_TURN, biased_in=EVERYWHERE),
    "`grpo` without std, k1, a row per turn": arm("grpo", KL | NO_STD | ROW_PER_TURN, biased_in=EVERYWHERE),
    "`gae`, k1, not whitened": arm("gae", KL, is_raw=True),
    "`gae`, k1, λ = .5, not whitened": arm("gae", KL | HALF, is_raw=True),
    "bi-level, γ_H = 1, k1, not whitened": arm("gae", KL | BI_LEVEL | UNDISCOUNTED, biased_in=STOPPING, is_raw=True),
    "`gigpo` without std, γ_H = 1, k1": arm("gigpo", KL | NO_STD | UNDISCOUNTED, biased_in=EVERYWHERE),
}

AGGREGATION_ARMS = {
    f"`{mode}`{row}": arm("rloo", weighed(mode) | more, is_per_batch=True, is_weighed=True, **claims)
    for mode, row, more, claims in [
        ("seq-mean-token-sum", "", {}, {}),
        ("seq-mean-token-sum", ", a row per turn", ROW_PER_TURN, {"claim": UP_TO_A_FACTOR, "biased_in": STOPPING}),
        ("seq-mean-token-sum-norm", "", {}, {"claim": UP_TO_A_FACTOR, "biased_in": STOPPING}),
        ("token-mean", "", {}, {"claim": UP_TO_A_FACTOR, "biased_in": STOPPING}),
        ("seq-mean-token-mean", "", {}, {"claim": UP_TO_A_FACTOR, "biased_in": STOPPING}),
    ]
}

SECTIONS = {"expected reward": REWARD_ARMS, "less the KL": KL_ARMS, "loss_agg_mode": AGGREGATION_ARMS}
ARMS = REWARD_ARMS | KL_ARMS | AGGREGATION_ARMS


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exact", action="store_true", help="draw no batches")
    parser.add_argument("--batches", type=int, default=NUM_BATCHES, help="drawn for each process")
    args = parser.parse_args(argv)
    laboratories = {name: Laboratory.of(process()) for name, process in PROCESSES.items()}
    for title, arms in SECTIONS.items():
        print(f"{title}, exact:\n", *exact_rows(arms, laboratories), "", sep="\n", flush=True)
        if not args.exact:
            rows = drawn_rows(arms, laboratories, args.batches)
            print(f"{title}, {args.batches} batches:\n", *rows, "", sep="\n", flush=True)
    return 0


Laboratories = Mapping[str, Laboratory]


def exact_rows(arms: Mapping[str, Arm], laboratories: Laboratories) -> list[str]:
    """A Markdown table: factor, angle and noise of every group of two, exactly."""

    def cells(arm: Arm, laboratory: Laboratory) -> list[str]:
        found = laboratory.measure(arm)
        return [f"{found.factor:.2f}", f"{found.angle:.1f}", f"{found.noise:.2f}"]

    return _rows(arms, laboratories, cells)


def drawn_rows(arms: Mapping[str, Arm], laboratories: Laboratories, num_batches: int) -> list[str]:
    """The same from drawn batches, with 95 % bands."""

    def cells(arm: Arm, laboratory: Laboratory) -> list[str]:
        found = laboratory.measure(arm, num_batches=num_batches)
        low, high = found.angle_band()
        factor = f"{found.factor:.2f} ± {found.factor_margin:.2f}"
        return [factor, f"{found.angle:.1f} [{low:.1f}, {high:.1f}]", f"{found.noise:.2f}"]

    return _rows(arms, laboratories, cells)


def _rows(
    arms: Mapping[str, Arm], laboratories: Laboratories, cells: Callable[[Arm, Laboratory], list[str]]
) -> list[str]:
    columns = [column for name in laboratories for column in (f"{name}: factor", "angle", "noise")]
    rows = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name, arm in arms.items():
        found = [cell for laboratory in laboratories.values() for cell in cells(arm, laboratory)]
        rows.append(f"| {name} | {' | '.join(found)} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
