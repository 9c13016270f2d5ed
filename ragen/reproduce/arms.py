"""The arms that claims share, from the shipped configurations. Who changes one changes the runs of every claim here.

Tested in tests/reproduce/test_plan.py.
"""

from __future__ import annotations

from dataclasses import replace

from ragen.reproduce.claim import Arm, Budget
from ragen.sweeps.experiments import Overrides

FILTER = "actor_rollout_ref.rollout.rollout_filter"
LR = "actor_rollout_ref.actor.optim.lr"
LOSS = "actor_rollout_ref.actor.policy_loss"
AGGREGATION = "actor_rollout_ref.actor.loss_agg_mode"
TRAIN, VAL = "es_manager.train", "es_manager.val"
SUCCESS_RATE = "custom_envs.FrozenLake.env_config.success_rate"
ACTIONS_PER_TURN = "agent_proxy.max_actions_per_turn"

TO_THE_END: Overrides = {
    "trainer.early_stop.variance_window": "0",
    "trainer.early_stop.low_success_patience": "0",
    f"{FILTER}_empty_stop_steps": "0",
}
"""No early stopping: a run that breaks counts with all its validations, so that arms can be compared by their means."""

QUIET: Overrides = TO_THE_END | {
    "trainer.logger": "[]",
    "trainer.preflight": "False",
    "trainer.gradient_analysis_mode": "False",
    "trainer.save_episodes_every": "10",
    "collapse_detection.compute_freq": "0",
}
"""No work that no claim reads; every tenth batch of episodes is kept for replays."""


def filtered(strategy: str, value: float, *, include_zero: bool = False, mode: str = "linear") -> Overrides:
    return {
        f"{FILTER}_strategy": strategy,
        f"{FILTER}_value": f"{value:g}",
        f"{FILTER}_include_zero": str(include_zero),
        f"{FILTER}_top_p_prob_mode": mode,
    }


NO_FILTER = filtered("top_p", 1, include_zero=True)
ZERO_DROPPED = filtered("top_p", 1)
MINI_BATCH = "ppo_mini_batch_size"


def top_p(arm: Arm, value: float, *, mode: str = "linear") -> Arm:
    """Groups without variance dropped, and of the others the best until they hold this share of all deviations."""
    return arm.but(filtered("top_p", value, mode=mode) | mini_batch(arm, value))


def top_k(arm: Arm, share: float) -> Arm:
    return arm.but(filtered("top_k", share, include_zero=True) | mini_batch(arm, share))


def filters(arm: Arm) -> dict[str, Arm]:
    """None, groups without variance dropped, and top-p."""
    return {"no filter": arm, "zeros dropped": arm.but(ZERO_DROPPED), "top-p 0.9": top_p(arm, 0.9)}


def mini_batch(arm: Arm, share: float) -> Overrides:
    """Where a step is one update of the whole batch, it is one update of what is kept, too."""
    whole = arm.overrides.get(MINI_BATCH)
    return {MINI_BATCH: str(int(int(whole) * share))} if whole else {}


PPO: Overrides = {"algorithm.adv_estimator": "gae", "critic.optim.lr": "1e-3"}
"""The critic of an embedded model starts from nothing, so it learns faster than the actor."""

# --- minutes: embedded models, about a minute or two of one core

SMALL: Overrides = QUIET | {
    f"{TRAIN}.env_groups": "8",
    f"{TRAIN}.group_size": "8",
    f"{VAL}.env_groups": "128",
    MINI_BATCH: "64",
    "trainer.test_freq": "10",
    "trainer.val_greedy": "False",
    "trainer.save_freq": "-1",
}

LAKE = Arm(
    config_name="quickstart",
    overrides=SMALL
    | NO_FILTER
    | {
        "trainer.total_training_steps": "60",
        # As in the configuration; written out, so that an arm that varies one of them shares its runs.
        SUCCESS_RATE: "1",
        ACTIONS_PER_TURN: "2",
    },
    seconds=75,
)
"""Lakes without slip, GRPO at the rate of the quickstart, every group trained on."""
SOKOBAN = Arm(
    config_name="quickstart_sokoban", overrides=SMALL | NO_FILTER | {"trainer.total_training_steps": "40"}, seconds=110
)
BANDIT = Arm(
    config_name="quickstart_bandit",
    overrides=SMALL
    | NO_FILTER
    | {
        f"{TRAIN}.group_size": "32",
        f"{VAL}.env_configs.n_groups": "[64,64]",
        MINI_BATCH: "256",
        "trainer.total_training_steps": "60",
    },
    seconds=40,
)

HOT_RATE: Overrides = {LR: "2e-3"}
"""Ten times the usual rate: training breaks within a run of minutes. In pilot runs with another seed, 60 steps without
filter, success fell and came back at 5e-4 and 1e-3; at 2e-3 it was lost."""
HOT_LAKE = LAKE.but(HOT_RATE | {"trainer.total_training_steps": "80"}, times=1.3)
HOT_BANDIT = BANDIT.but(HOT_RATE)
HOT_SOKOBAN = SOKOBAN.but({LR: "1e-3", "trainer.total_training_steps": "30"}, times=0.8)


def slippery(arm: Arm, slip: float) -> Arm:
    """A lake on which so many moves go elsewhere."""
    return arm.but({SUCCESS_RATE: f"{1 - slip:g}"})


TAUGHT_SOKOBAN = Arm(
    config_name="quickstart_sokoban",
    overrides={**SOKOBAN.overrides, "trainer.val_only": "True"},
    demonstrations={
        "sft.epochs": "3",
        "sft.optim.lr": "1e-3",
        "sft.micro_batch_size": "16",
        "sft.validate_merged": "False",
        "model_path": "tiny",
    },
    seconds=60,
)
"""Three epochs on 1000 solved levels, and one validation."""

PROBE: Overrides = (
    QUIET
    | NO_FILTER
    | {
        "trainer.total_training_steps": "11",
        "trainer.val_before_train": "False",
        "trainer.test_freq": "0",
        "trainer.save_freq": "-1",
        "trainer.gradient_analysis_mode": "True",
        "trainer.gradient_analysis_every": "10",
        "trainer.gradient_analysis_env_groups": "64",
        "trainer.gradient_analysis_group_size": "16",
        "trainer.save_episodes_every": "0",
        f"{TRAIN}.env_groups": "8",
        f"{TRAIN}.group_size": "8",
        MINI_BATCH: "64",
        "actor_rollout_ref.actor.use_kl_loss": "True",
        "actor_rollout_ref.actor.kl_loss_coef": "0.001",
        "actor_rollout_ref.actor.entropy_coeff": "0.001",
    }
)
"""Gradients of 64 groups of 16 episodes at steps 1 and 11; at step 1 the policy is the reference, so KL has none."""
GRPO_PROBE = Arm(config_name="quickstart_sokoban", overrides=PROBE, seconds=150)
PPO_PROBE = GRPO_PROBE.but(PPO, times=1.3)
NO_STD: Overrides = {"algorithm.norm_adv_by_std_in_grpo": "False"}
DR_GRPO_PROBE = GRPO_PROBE.but(NO_STD)

PASS_RATE_GROUP = 8
PASS_RATE_PROBE = Arm(
    config_name="quickstart",
    overrides=PROBE
    | {
        "trainer.total_training_steps": "1",
        "trainer.gradient_analysis_env_groups": "192",
        "trainer.gradient_analysis_group_size": str(PASS_RATE_GROUP),
        "actor_rollout_ref.rollout.gradient_analysis_bucket_mode": "reward_mean",
        "actor_rollout_ref.rollout.gradient_analysis_num_buckets": str(PASS_RATE_GROUP + 1),
        "actor_rollout_ref.actor.use_kl_loss": "False",
        "actor_rollout_ref.actor.entropy_coeff": "0",
        "es_manager.format_penalty": "0",
    },
    seconds=60,
)
"""Lakes pay 0 or 1, so that the mean reward of a group is its pass rate."""

# --- hour: a real model of 0.5B parameters, three runs on one GPU

REAL: Overrides = QUIET | {
    "trainer.total_training_steps": "150",
    "trainer.test_freq": "15",
    "trainer.save_freq": "50",
    "trainer.preflight": "True",
    f"{VAL}.env_groups": "256",
    "collapse_detection.compute_freq": "15",
}
REAL_LAKE = Arm(config_name="real_frozen_lake", overrides=REAL | NO_FILTER, seconds=400, gigabytes=6)

REAL_BANDIT = Arm(
    config_name="real_bandit",
    overrides=REAL | NO_FILTER | {f"{VAL}.env_configs.tags": "[BanditTest]", f"{VAL}.env_configs.n_groups": "[256]"},
    seconds=900,
    gigabytes=6,
)
"""Measured on names of arms that training never shows."""

# --- day: the published size

PUBLISHED: Overrides = TO_THE_END | {
    "model_path": "Qwen/Qwen2.5-3B",
    "trainer.logger": "[console]",
    "trainer.total_training_steps": "400",
    "trainer.save_freq": "50",
    f"{TRAIN}.env_groups": "8",
    f"{TRAIN}.group_size": "16",
    f"{VAL}.env_groups": "512",
    # As the published scripts have it; passes of one sample, the default, leave most of a GPU idle.
    "micro_batch_size_per_gpu": "4",
    "log_prob_micro_batch_size_per_gpu": "8",
}
PUBLISHED_SOKOBAN = Arm(config_name="_2_sokoban", overrides=PUBLISHED | NO_FILTER, seconds=4 * 3600, gigabytes=72)
PUBLISHED_LAKE = Arm(config_name="_3_frozen_lake", overrides=PUBLISHED | NO_FILTER, seconds=4 * 3600, gigabytes=72)
PUBLISHED_PROBE: Overrides = (
    PUBLISHED
    | PROBE
    | {
        "trainer.gradient_analysis_env_groups": "128",
        f"{TRAIN}.group_size": "16",
        MINI_BATCH: "32",
    }
)
PUBLISHED_PPO_PROBE = Arm(config_name="_2_sokoban", overrides=PUBLISHED_PROBE, seconds=3600)
PUBLISHED_GRPO_PROBE = PUBLISHED_PPO_PROBE.but({"algorithm.adv_estimator": "grpo", AGGREGATION: "seq-mean-token-mean"})
PROBES: dict[Budget, dict[str, Arm]] = {
    "minutes": {"PPO": PPO_PROBE, "GRPO": GRPO_PROBE},
    "day": {"PPO": PUBLISHED_PPO_PROBE, "GRPO": PUBLISHED_GRPO_PROBE},
}
"""What the claims about gradients by reward variance read."""


def smallest(arm: Arm) -> Arm:
    """The same with the smallest model of the papers."""
    sizes = {"micro_batch_size_per_gpu": "16", "log_prob_micro_batch_size_per_gpu": "16"}
    return replace(arm.but({"model_path": "Qwen/Qwen2.5-0.5B"} | sizes, times=0.25), gigabytes=12)


def main_table(arm: Arm, name: str) -> dict[str, Arm]:
    """Two cells of RAGEN-2's main table at its smallest size: without and with its filter."""
    small = smallest(arm)
    return {name: small, f"{name}, filtered": small.but(filtered("top_p", 0.9, include_zero=True, mode="softmax"))}
