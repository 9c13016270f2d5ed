"""The message for an override whose key does not exist."""

from collections.abc import Mapping
from typing import Any

from ragen.config.strict import nearest
from ragen.errors import ConfigError

ABSENT_KEYS = {
    "use_ref": "The reference model is loaded when actor_rollout_ref.actor.use_kl_loss or "
    "algorithm.use_kl_in_reward is True, and only then. Leave the key out.",
    "batch_adjust_mode": "Batches of any size are trained without copying or deleting samples. Leave the key out.",
    "train_batch_size": "A batch is es_manager.train.env_groups x es_manager.train.group_size episodes. Set those.",
    "prompt_length": "Limit the context with actor_rollout_ref.rollout.max_model_len.",
    "max_prompt_length": "Limit the context with actor_rollout_ref.rollout.max_model_len.",
    "max_response_length": "Limit a reply with actor_rollout_ref.rollout.response_length.",
    "n": "Episodes of one level are counted by es_manager.train.group_size.",
    "use_remove_padding": "Batches are packed without padding. Leave the key out.",
    "load_format": "The engine runs on the weights of the actor. Leave the key out.",
    "strategy": "One GPU trains in this process, several with FSDP. Leave the key out.",
    **dict.fromkeys(
        ("param_offload", "optimizer_offload"),
        "actor_rollout_ref.actor.fsdp_config.offload_policy=True moves weights, gradients and moments of all models.",
    ),
    "use_torch_compile": "The model is not compiled. Leave the key out.",
}
"""Keys of other code bases, by their last name: what replaces them."""


def explain_unknown_override(override: str, known: Mapping[str, Any]) -> None:
    """Raise a ConfigError if the override changes a key that the tree `known` does not have."""
    key = override.partition("=")[0].lstrip("~").strip()
    if key.startswith("+") or key in list_paths(known):
        return
    last = key.rsplit(".", 1)[-1]
    if last in ABSENT_KEYS:
        raise ConfigError(f"{key}: unknown key. {ABSENT_KEYS[last]}")
    if key.startswith("custom_envs."):
        raise ConfigError(f"{key}: no such key yet.{suggest(key, known)} To add it to the table, write +{override}")
    raise ConfigError(f"{key}: unknown key.{suggest(key, known)} All keys: ragen config")


def suggest(key: str, known: Mapping[str, Any]) -> str:
    """The existing key that was probably meant: same ending, else same parent, else most alike."""
    paths = list_paths(known)
    last = key.rsplit(".", 1)[-1]
    parent = key.removesuffix(last)
    same_ending = [path for path in paths if path.endswith(f".{key}")] or [
        path for path in paths if path.rsplit(".", 1)[-1] == last and not path.startswith("custom_envs.")
    ]
    if same_ending:
        return f" Did you mean {' or '.join(same_ending[:3])}?"
    siblings = [path for path in paths if path.startswith(parent) and "." not in path.removeprefix(parent)]
    by_last_name = {path.rsplit(".", 1)[-1]: path for path in reversed(paths)}
    match = nearest(key, siblings) or by_last_name.get(nearest(last, by_last_name) or "") or nearest(key, paths)
    return f" Did you mean {match}?" if match else ""


def list_paths(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """All dotted keys, parents before children."""
    paths = []
    for name, value in tree.items():
        paths.append(f"{prefix}{name}")
        if isinstance(value, Mapping):
            paths += list_paths(value, f"{prefix}{name}.")
    return paths
