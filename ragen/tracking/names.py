"""The names of metrics, and how a row of metrics.jsonl is read back by them.

A name is a path: train/<tag>/success. The rule: whoever looks for a name in a row takes it, or the function that builds
or finds it, from here; no reader spells or tests a name itself. What nobody reads back is written out where it is
computed. Algorithms return bare names ("pg_clipfrac"), and whoever logs them adds the prefix. Every name has a line in
docs/metrics.md, and tests/tracking/test_glossary.py holds that page and this module against what runs log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

# Where episodes come from: <rollout>/<tag>/<metric>, <rollout>/<metric>.
TRAIN, VALIDATION, GREEDY_VALIDATION = "train", "val-env", "val-env-greedy"
SUCCESS, SCORE, RESPONSE_LENGTH = "success", "score", "response_length"
EPISODES, RESPONSE_TOKENS = "episodes", "response_tokens"
FAULTS, TRUNCATION, INCOMPLETE_GROUPS = "faults", "truncation", "incomplete_groups"
FORMAT_VALID, LENIENT_VALID = "format/valid", "format/lenient_valid"
NOVELTIES = UNSEEN, SEEN = "unseen", "seen"
"""Validation levels that training has not played so far, by content, and those it has."""

# The levels of training: levels/<tag>/<metric>.
LEVELS = "levels"
PASS_RATE_BINS = ("none", "few", "some", "most", "all")
"""Of a histogram of pass rates: levels/<tag>/played_<bin>, pool_<bin>."""

# The rollout filter, and the actor and critic: <part>/<metric>.
FILTER, ACTOR, CRITIC, SFT = "rollout", "actor", "critic", "sft"
KEPT_COUNT, KEPT_RATIO = "rollout/filter_kept_count", "rollout/filter_kept_ratio"
DROPPED_COUNT = "rollout/filter_dropped_count"
EMPTY_AFTER_FILTER = "rollout/empty_after_filter"
EXITED = "trainer/exited_after_gradient_analysis"
IN_GROUP_REWARD_STD = "rollout/in_group_reward_std"
KL_TO_REFERENCE = ("actor/kl_loss", "actor/reward_kl_penalty")
PPO_KL = "actor/ppo_kl"
ENTROPIES = ("actor/entropy", "actor/entropy_loss")
SKIPPED_STEPS = "skipped_steps"
EXPLAINED_VARIANCE = "critic/vf_explained_var"
LOGPROB_MISMATCH = "rollout/logprob_mismatch_mean"
INVALID = "manager_invalid_action"
VALID_MINUS_INVALID = "incentive/valid_minus_invalid"
SOLVED_LOGPROB = "incentive/solved_logprob"
SFT_TRAIN_LOSS, SFT_VAL_LOSS = "sft/train_loss", "sft/val_loss"

# What differs from run to run on the same machine: <prefix>/<stage>.
TIMING, TIMING_PER_TOKEN, PERFORMANCE = "timing_s", "timing_per_token_ms", "perf"
SFT_SPEED = "sft/tokens_per_second"
MEMORY_SHARE = f"{PERFORMANCE}/peak_memory_share"
TRAINED_TOKENS = f"{PERFORMANCE}/total_num_tokens"

# Gradient analysis: <prefix>/<bucket>/<metric>. The bucket is `all`, or bucket_1 (lowest reward deviation), ...
GRADIENTS, PREFILTER_GRADIENTS = "grad_norm", "grad_norm_prefilter"
ALL_SAMPLES = "all"
GROUP_TABLE = "group_rv_table"
Component = Literal["task", "entropy", "kl"]
LOSSES: dict[Component, str] = {"task": "policy", "entropy": "entropy", "kl": "kl"}
"""Component of the actor's loss -> the name of its value."""
BucketMetric = (
    Component
    | Literal["sample_count", "sample_pct", "reward_mean", "reward_std_mean", "reward_std_min", "reward_std_max"]
    | Literal["group_rv_count"]
)
"""What is said of a bucket; a component stands for the norm of its gradient."""
Measure = Literal[
    "per_sample",
    "per_token",
    "norm_low",
    "norm_high",
    "norm_debiased",
    "norm_one_group",
    "is_probed",
    "split_half_cosine",
    "cosine",
    "loss",
]
"""What is measured of a component: <prefix>/<bucket>/<measure>/<component>, and /loss/<its loss>."""

# Signs of collapse: <sampled turns>/<metric>.
FIRST_TURNS, ANY_TURNS = "collapse_first_turn_sample", "collapse_trajectory_sample"
CollapseMetric = Literal[
    "mi_estimate",
    "mi_upper_bound",
    "conditional_entropy_est",
    "reasoning_entropy_est",
    "retrieval_accuracy",
    "retrieval_chance_level",
]
"""What figures show of them."""


def join(*parts: str) -> str:
    """ "train", "Bandit", "success" -> "train/Bandit/success"."""
    return "/".join(parts)


def with_prefix(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """ "train", {"A/success": 0.5} -> {"train/A/success": 0.5}"""
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def below(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row holds under a prefix: the inverse of `with_prefix`."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in row.items() if name.startswith(start)}


# --- episodes -------------------------------------------------------------------------------------------------------


def by_tag(row: Mapping[str, Any], rollout: str, metric: str) -> dict[str, float]:
    """A metric of every environment: train/A/success, but not train/A/non-zero/success.

    {"train/A/success": 0.5, "train/A/non-zero/success": 1.0}, "train", "success" -> {"A": 0.5}
    """
    parts = [(name.partition("/"), value) for name, value in below(rollout, row).items()]
    return {tag: value for (tag, _, rest), value in parts if rest == metric}


def success_on(novelty: str) -> str:
    """success_unseen"""
    return f"{SUCCESS}_{novelty}"


def num_levels(novelty: str) -> str:
    """levels_unseen"""
    return f"levels_{novelty}"


def interval_ends(name: str) -> tuple[str, str]:
    """ "success" -> ("success_low", "success_high")"""
    return f"{name}_low", f"{name}_high"


def turn_entropy(turn: int) -> str:
    """entropy/turn_1: of the first turn"""
    return f"entropy/turn_{turn}"


# --- signs of collapse ----------------------------------------------------------------------------------------------


def collapse(turns: str, metric: CollapseMetric) -> str:
    """collapse_first_turn_sample/mi_estimate"""
    return join(turns, metric)


# --- time -----------------------------------------------------------------------------------------------------------


def seconds(stage: str) -> str:
    """timing_s/gen"""
    return join(TIMING, stage)


def without_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row holds that the same computation gives again."""
    times = tuple(f"{prefix}/" for prefix in (TIMING, TIMING_PER_TOKEN, PERFORMANCE))
    return {name: value for name, value in row.items() if not name.startswith(times) and name != SFT_SPEED}


# --- gradient analysis ----------------------------------------------------------------------------------------------


def of(measure: Measure, component: str) -> str:
    """ "norm_low", "task" -> "norm_low/task", a name within a bucket."""
    return join(measure, component)


def pair(first: str, second: str) -> str:
    """ "task", "kl" -> "task_kl": the two components of a cosine."""
    return f"{first}_{second}"


def numbered_buckets(row: Iterable[str], prefix: str) -> list[str]:
    """The buckets that a row has, by number: bucket_2 before bucket_10, and not `all`."""
    start = f"{prefix}/bucket_"
    numbers = {name.removeprefix(start).partition("/")[0] for name in row if name.startswith(start)}
    return [f"bucket_{number}" for number in sorted(map(int, filter(str.isdecimal, numbers)))]
