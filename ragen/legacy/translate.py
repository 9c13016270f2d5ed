"""From legacy settings to overrides of the normal configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ragen.config.quoting import quoted
from ragen.errors import ConfigError
from ragen.legacy.settings import Settings
from ragen.legacy.table import ACTOR, ROLLOUT, TABLE

TAGS = {"sokoban": "SimpleSokoban", "frozenlake": "FrozenLake", "two_armed_bandit": "TwoArmedBandit"}
"""Legacy environment -> the tag that plays it."""
NUM_TRAIN_LEVELS, NUM_VAL_LEVELS = 10_000, 500
"""Levels of an epoch and of a validation where the data sets are taken whole."""
FIXED = {
    f"{ROLLOUT}.top_p": 0.95,
    f"{ROLLOUT}.val_kwargs.top_p": 0.95,
    f"{ACTOR}.clip_ratio_high": 0.2,
    "agent_proxy.max_actions_per_turn": 1,
    "trainer.val_greedy": True,
    # Probes and early stops are younger than these experiments.
    "trainer.gradient_analysis_mode": False,
    "collapse_detection.compute_freq": 0,
    "trainer.early_stop.variance_window": 0,
    "trainer.early_stop.low_success_patience": 0,
}
"""What that backend had built in, where it differs from config/base.yaml."""
INVALID_PENALTY = {"two_armed_bandit": 0.0}
"""Legacy environment -> penalty of a turn without a usable action; -1 elsewhere."""
NOT_IN_SFT = ("model.", "logging.", "trainer.project_name", "training.ppo_batch_size")
"""Keys with a counterpart under sft.training, and the mini batch of a training that does not happen."""


class Change(NamedTuple):
    """One override and where it comes from."""

    source: str
    """The legacy key; empty for what is fixed."""
    override: str


def translate(settings: Settings) -> list[Change]:
    """All overrides of config/base.yaml that the legacy settings mean."""
    is_sft = run_kind(settings) == "sft"
    stray = sorted(key for key in settings.given if key.startswith("sft.") and not TABLE[key].is_gone)
    if stray and not is_sft:
        raise ConfigError(f"{stray[0]} is set, but rl_or_sft is rl, which does not read it. Add rl_or_sft=sft.")
    if not is_sft:
        check_batch(settings)
    changes = [change("", key, value) for key, value in FIXED.items()]
    changes += environment(settings)
    for key, row in TABLE.items():
        is_other_half = key.startswith(NOT_IN_SFT) if is_sft else key.startswith("sft.")
        if row.is_direct and not is_other_half:
            changes += [change(key, name, settings[key]) for name in row.keys]
    changes += lengths(settings) + steps(settings) + divergence(settings) + devices(settings)
    changes += supervised(settings) if is_sft else [loggers(settings, "logging.mode")]
    return changes


def run_kind(settings: Settings) -> str:
    kind = settings["rl_or_sft"]
    if kind not in ("rl", "sft"):
        raise ConfigError(f"rl_or_sft={kind}: choose rl or sft.")
    return kind


def check_batch(settings: Settings) -> None:
    levels, plays, mini_batch = (
        settings[f"training.{name}"] for name in ("train_batch_size", "n_rollout", "ppo_batch_size")
    )
    if levels * plays < mini_batch:
        raise ConfigError(
            f"training.ppo_batch_size is {mini_batch}, but a step plays only {levels * plays} episodes "
            f"(train_batch_size {levels} x n_rollout {plays}). Set training.ppo_batch_size={levels * plays} or less "
            "(now ppo_mini_batch_size)."
        )


def environment(settings: Settings) -> list[Change]:
    """The tag, its options, its budget and the penalty of an invalid answer."""
    env, tag = settings.env, TAGS[settings.env]
    options = {key: value for key, value in settings.env_config.items() if f"env.{key}" not in TABLE}
    changes = [
        change("", "es_manager.train.env_configs.tags", [tag]),
        change("", "es_manager.format_penalty", INVALID_PENALTY.get(env, -1.0)),
        change("training.max_turns", "agent_proxy.max_turn", settings["training.max_turns"]),
        change("training.no_think_rl", "agent_proxy.enable_think", not settings["training.no_think_rl"]),
    ]
    changes += [change(f"env.{key}", f"++custom_envs.{tag}.env_config.{key}", value) for key, value in options.items()]
    if env != "two_armed_bandit":  # whose only action ends the episode
        budget = f"custom_envs.{tag}.max_actions_per_traj"
        changes.append(change("training.max_turns", budget, settings["training.max_turns"]))
    return [*changes, *validation_arms(settings, tag, options)]


def validation_arms(settings: Settings, tag: str, options: dict[str, Any]) -> Iterator[Change]:
    """A tag of its own for validation, where its arms have other names."""
    names = {key: settings.env_config.get(f"{key.removesuffix('_name')}_val_name") for key in options}
    if not any(names.values()):
        return
    val_tag = f"{tag}Val"
    for field in ("env_type", "max_actions_per_traj", "env_instruction", "max_tokens"):
        yield Change("", f"+custom_envs.{val_tag}.{field}=${{custom_envs.{tag}.{field}}}")
    for key, name in names.items():
        source = f"env.{key.removesuffix('_name')}_val_name"
        yield change(source, f"+custom_envs.{val_tag}.env_config.{key}", name or options[key])
    yield change("", "es_manager.val.env_configs.tags", [val_tag])


def lengths(settings: Settings) -> list[Change]:
    """Batch sizes and context."""
    per_turn = settings["training.max_response_length"] + settings["training.max_obs_length"]
    context = settings["training.max_start_length"] + settings["training.max_turns"] * per_turn
    levels = settings["training.val_batch_size"]
    if run_kind(settings) == "rl":
        levels = max(levels, settings["training.train_batch_size"])
    at_once = levels * settings["training.n_rollout"]
    micro = max(1, settings["training.micro_batch_size"] // max(1, settings[gpus_key(settings)]))
    val_levels = settings["training.val_data_num"] or NUM_VAL_LEVELS
    return [
        change("training.max_start_length", f"{ROLLOUT}.max_model_len", context),
        change("training.val_batch_size", f"{ROLLOUT}.max_num_seqs", at_once),
        change("training.micro_batch_size", "micro_batch_size_per_gpu", micro),
        change("training.val_data_num", "es_manager.val.env_groups", val_levels),
    ]


def steps(settings: Settings) -> list[Change]:
    total, source = settings["training.total_training_steps"], "training.total_training_steps"
    if total is None:
        levels = settings["training.train_data_num"] or NUM_TRAIN_LEVELS
        per_epoch = levels // settings["training.train_batch_size"]
        total, source = settings["training.total_epochs"] * per_epoch, "training.total_epochs"
    return [change(source, "trainer.total_training_steps", total)]


def divergence(settings: Settings) -> list[Change]:
    """The KL to the initial model is always a penalty: in the loss, or in the reward."""
    in_loss, coef = settings["training.use_kl_loss"], settings["optimization.kl_coef"]
    where = f"{ACTOR}.kl_loss_coef" if in_loss else "algorithm.kl_ctrl.kl_coef"
    return [
        change("training.use_kl_loss", f"{ACTOR}.use_kl_loss", in_loss),
        change("training.use_kl_loss", "algorithm.use_kl_in_reward", not in_loss),
        change("optimization.kl_coef", where, coef),
    ]


def devices(settings: Settings) -> list[Change]:
    key, count = "system.cuda_visible_devices", settings[gpus_key(settings)]
    ids = settings[key]
    if key not in settings.given and count > 1:
        ids = ",".join(map(str, range(count)))
    return [
        change(gpus_key(settings), "trainer.n_gpus_per_node", count),
        change(key, "system.CUDA_VISIBLE_DEVICES", ids),
    ]


def gpus_key(settings: Settings) -> str:
    """Which of the two keys counts the GPUs."""
    key = "sft.training.num_gpus"
    return key if run_kind(settings) == "sft" and key in settings.given else "system.n_gpus"


def supervised(settings: Settings) -> list[Change]:
    """What `ragen sft` needs beyond the keys that are handed on."""
    data_dir = f"{settings['sft.data_generation.data_dir']}/{settings.env}"
    return [
        change("", "ppo_mini_batch_size", 1),
        loggers(settings, "sft.training.logger"),
        change("sft.data_generation.data_dir", "sft.data_dir", data_dir),
    ]


def loggers(settings: Settings, key: str) -> Change:
    return change(key, "trainer.logger", list(dict.fromkeys(["console", *settings[key]])))


def change(source: str, key: str, value: Any) -> Change:
    """`key=value` as the config loader reads it.

    "a.b", "x y" -> "a.b='x y'"; "a.b", [1, True] -> "a.b=[1,True]"; "a.b", None -> "a.b=null"
    """
    return Change(source, f"{key}={to_text(value)}")


def to_text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(to_text, value))}]"
    return quoted(value) if isinstance(value, str) else str(value)
