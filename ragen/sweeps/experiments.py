"""The experiments: which values, which keys they set, how runs are called and where they write.

Model and output names follow one pattern: <experiment>_<model name>, below logs/ and model_saving/.

Tested in tests/sweeps/test_plan.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragen.errors import ConfigError

CONFIG_NAME = "_2_sokoban"

Overrides = dict[str, str]
"""Key -> value as Hydra reads it."""

BATCHES: Overrides = {
    "es_manager.train.env_groups": "8",
    "es_manager.train.group_size": "16",
    "es_manager.train.env_configs.n_groups": "[8]",
}

SHARED_BY_SWEEPS: Overrides = {
    "algorithm.adv_estimator": "gae",
    "trainer.logger": "['console','wandb']",
    "trainer.val_before_train": "True",
    "actor_rollout_ref.actor.filter_loss_scaling": "none",
    "actor_rollout_ref.actor.entropy_from_logits_with_chunking": "True",
    "ppo_mini_batch_size": "32",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "32",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "4",
    "critic.ppo_mini_batch_size": "32",
    "critic.ppo_micro_batch_size_per_gpu": "4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "8",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": "8",
    "actor_rollout_ref.rollout.rollout_filter_strategy": "top_p",
    "actor_rollout_ref.rollout.rollout_filter_top_p_prob_mode": "softmax",
    "actor_rollout_ref.rollout.rollout_filter_type": "largest",
    "actor_rollout_ref.rollout.rollout_filter_metric": "reward_variance",
    **BATCHES,
    "es_manager.val.env_groups": "512",
    "es_manager.val.group_size": "1",
    "es_manager.val.env_configs.n_groups": "[512]",
}

LOG_PROB_FEEDS = ("log_prob_micro_batch_size_per_gpu", "micro_batch_size_per_gpu")

FED_BY: dict[str, tuple[str, ...]] = {
    "es_manager.train.env_configs.n_groups": ("es_manager.train.env_groups", "es_manager.train.env_configs.tags"),
    "es_manager.val.env_configs.n_groups": ("es_manager.val.env_groups", "es_manager.train.env_configs.tags"),
    "actor_rollout_ref.actor.ppo_mini_batch_size": ("ppo_mini_batch_size",),
    "critic.ppo_mini_batch_size": ("ppo_mini_batch_size",),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": ("micro_batch_size_per_gpu",),
    "critic.ppo_micro_batch_size_per_gpu": ("micro_batch_size_per_gpu",),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": LOG_PROB_FEEDS,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": LOG_PROB_FEEDS,
}
"""Keys that take their value from another one unless they are set: who sets the other one means both."""


class SweepPoint(NamedTuple):
    """One value of a sweep."""

    fields: dict[str, str]
    """What its result line begins with."""
    overrides: Overrides


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """One intervention, several values."""

    title: str
    slug: str
    """What its folders and logs are called: <slug>_<model name>."""
    value_option: str
    default_values: str
    varied: tuple[str, ...]
    """The keys that the value decides."""
    point_of: Callable[[str, bool], SweepPoint]
    """Value and include_zero -> the point; ValueError on a text that is not a value of this sweep."""
    name: str
    """Of an experiment, without the model; {tag} is the filter tag, {label} the value."""
    baseline: str = "0"
    """The value that the report compares the others with; the first one where it is not among them."""


def value_label(value: str) -> str:
    """The value in names and paths: dots go, letters become small. 0.001 -> 0001, 1.0 -> 10, nofilter"""
    return value.replace(".", "").lower()


def check_labels(values: Sequence[str], option: str) -> None:
    """Two values with one label would write into one folder, and two ways of writing a value are one experiment."""
    by_label: dict[str, str] = {}
    by_number: dict[float | str, str] = {}
    for value in values:
        number, label = number_in(value), value_label(value)
        if not re.fullmatch(r"[\w+-]+", label):
            raise ConfigError(f"{option}: {value!r} cannot be part of a file name. Give numbers such as 0.01.")
        if number in by_number:
            raise ConfigError(f"{option}: {by_number[number]} and {value} are the same value. Leave one out.")
        if label in by_label:
            raise ConfigError(
                f"{option}: {by_label[label]} and {value} are both called {label} in paths (dots are left out), "
                "so they would write into one folder. Leave one out or write it another way, for example 1 for 1.0."
            )
        by_label[label] = by_number[number] = value


def filter_tag(include_zero: bool) -> str:
    return "nofilter" if include_zero else "filter_zero"


def as_number(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def number_in(value: str) -> float | str:
    """The number where a value is one: 0.10 -> 0.1, nofilter -> nofilter"""
    try:
        return as_number(value)
    except ValueError:
        return value


def settings(*, filter_value: str, include_zero: bool, use_kl: bool, kl: str, entropy: str) -> Overrides:
    return {
        "actor_rollout_ref.rollout.rollout_filter_value": filter_value,
        "actor_rollout_ref.rollout.rollout_filter_include_zero": str(include_zero),
        "actor_rollout_ref.actor.use_kl_loss": str(use_kl),
        "actor_rollout_ref.actor.kl_loss_coef": kl,
        "actor_rollout_ref.actor.entropy_coeff": entropy,
    }


def top_p_point(value: str, _: bool) -> SweepPoint:
    """1.0 keeps all groups but those without variance, nofilter really all."""
    is_nofilter = value.lower() == "nofilter"
    number = "1.0" if is_nofilter else value
    if not 0 < as_number(number) <= 1:
        raise ValueError(value)
    fields = {"value": value, "include_zero": str(is_nofilter), "filter_value": number}
    return SweepPoint(
        fields, settings(filter_value=number, include_zero=is_nofilter, use_kl=True, kl="0.001", entropy="0.001")
    )


def kl_point(value: str, include_zero: bool) -> SweepPoint:
    """At 0 the KL is off, so that the reference model is neither loaded nor run."""
    use_kl = as_number(value) != 0
    return SweepPoint(
        {"kl": value, "filter": filter_tag(include_zero), "include_zero": str(include_zero)},
        settings(filter_value="1", include_zero=include_zero, use_kl=use_kl, kl=value, entropy="0.0"),
    )


def entropy_point(value: str, include_zero: bool) -> SweepPoint:
    as_number(value)
    return SweepPoint(
        {"entropy": value, "filter": filter_tag(include_zero), "include_zero": str(include_zero)},
        settings(filter_value="1", include_zero=include_zero, use_kl=False, kl="0", entropy=value),
    )


COEFFICIENTS = "0,0.001,0.003,0.01,0.03,0.1"
SWEEPS = {
    "top-p": Sweep(
        title="Top-p sweep",
        slug="top_p_sweep",
        value_option="--rollout_filter_value",
        default_values="1.0,0.98,0.95,0.9,0.8,0.6,0.4,nofilter",
        varied=(
            "actor_rollout_ref.rollout.rollout_filter_value",
            "actor_rollout_ref.rollout.rollout_filter_include_zero",
        ),
        point_of=top_p_point,
        name="sokoban_top_p_{label}",
        baseline="nofilter",
    ),
    "kl": Sweep(
        title="KL sweep",
        slug="kl_sweep",
        value_option="--kl-values",
        default_values=COEFFICIENTS,
        varied=("actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.use_kl_loss"),
        point_of=kl_point,
        name="sokoban_kl_sweep_{tag}_{label}",
    ),
    "entropy": Sweep(
        title="Entropy sweep",
        slug="entropy_sweep",
        value_option="--entropy-values",
        default_values=COEFFICIENTS,
        varied=("actor_rollout_ref.actor.entropy_coeff",),
        point_of=entropy_point,
        name="sokoban_entropy_sweep_{tag}_{label}",
    ),
}


# --- gradient analysis

ALGORITHMS: dict[str, Overrides] = {
    "PPO": {"algorithm.adv_estimator": "gae", "actor_rollout_ref.actor.loss_agg_mode": "token-mean"},
    "GRPO": {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": "True",
        "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean",
    },
}

GRADIENT_ANALYSIS: Overrides = {
    "trainer.logger": "['console','wandb']",
    **BATCHES,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.kl_loss_coef": "0.001",
    "actor_rollout_ref.actor.entropy_coeff": "0.001",
    "actor_rollout_ref.actor.entropy_from_logits_with_chunking": "True",
    "actor_rollout_ref.actor.filter_loss_scaling": "none",
    "actor_rollout_ref.rollout.rollout_filter_value": "0.9",
    "actor_rollout_ref.rollout.rollout_filter_strategy": "top_p",
    "actor_rollout_ref.rollout.rollout_filter_top_p_prob_mode": "linear",
    "actor_rollout_ref.rollout.rollout_filter_type": "largest",
    "actor_rollout_ref.rollout.rollout_filter_metric": "reward_variance",
    "actor_rollout_ref.rollout.rollout_filter_include_zero": "False",
    # Weights are enough to probe a step, and small enough to keep every one.
    "actor_rollout_ref.actor.checkpoint.save_contents": "[model]",
    "critic.checkpoint.save_contents": "[model]",
    "trainer.gradient_analysis_mode": "True",
    "trainer.gradient_analysis_env_groups": "128",
    "trainer.gradient_analysis_group_size": "16",
    "trainer.gradient_analysis_log_prefilter": "True",
    "actor_rollout_ref.rollout.gradient_analysis_num_buckets": "6",
    "actor_rollout_ref.rollout.gradient_analysis_bucket_mode": "quantile",
}

TRAINED: Overrides = {
    "trainer.test_freq": "10",
    "trainer.val_before_train": "True",
    "actor_rollout_ref.actor.use_kl_loss": "False",
    "trainer.gradient_analysis_every": "50",
    "trainer.exit_after_gradient_analysis": "False",
    # So that every step that was analysed can be probed: 1, 51, 101.
    "trainer.save_at_gradient_analysis": "True",
    "trainer.max_actor_ckpt_to_keep": "null",
    "trainer.max_critic_ckpt_to_keep": "null",
}

PROBED: Overrides = {
    "trainer.save_freq": "-1",
    "trainer.test_freq": "0",
    "actor_rollout_ref.actor.use_kl_loss": "True",
    "trainer.gradient_analysis_every": "1",
    "trainer.gradient_analysis_only": "True",
    "trainer.exit_after_gradient_analysis": "True",
    "trainer.resume_mode": "resume_path",
}


def trained_name(algorithm: str, model: str) -> str:
    return f"sokoban-{algorithm}-filter-topp09-{model}-train8x16-analysis128x16-grad-every50"


def trained_dir(algorithm: str, model: str) -> Path:
    """Where the training helper puts its checkpoints, and the probe looks for them."""
    return Path("model_saving/gradient_analysis/sokoban") / algorithm / "filter" / trained_name(algorithm, model)


def probe_name(algorithm: str, model: str, *, step: int, with_val: bool) -> str:
    val = "withval" if with_val else "noval"
    return f"sokoban-{algorithm}-filter-topp09-{model}-probe-ckpt{step}-{val}-kl_and_entropy"
