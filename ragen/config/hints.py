"""The message for an override whose key does not exist."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ragen.config.schema import EnvTag
from ragen.config.strict import nearest, shorten
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
TABLE = "custom_envs."
"""What keys of environments begin with."""


def explain_unknown_override(override: str, known: Mapping[str, Any]) -> None:
    """Raise a ConfigError if the override changes a key that the tree `known` does not have."""
    key, _, value = override.partition("=")
    key = key.lstrip("~").strip()
    if key.startswith("+"):
        return
    paths = list_paths(known)
    missing = [path for path in [key, *keys_within(override, key)] if path not in paths]
    if not missing:
        return
    new = missing[0]
    last = new.rsplit(".", 1)[-1]
    if last in ABSENT_KEYS:
        raise ConfigError(f"{new}: unknown key. {ABSENT_KEYS[last]}")
    if key.startswith(TABLE):
        hint = suggest(new, known)
        if new == key:
            raise ConfigError(f"{key}: no such key yet.{hint} To add it to the table, write +{override}")
        raise ConfigError(
            f"{key}: there is no {new.removeprefix(key + '.')} yet, and a mapping is merged into what stands there."
            f"{hint} To add to it, write +{key}={shorten(value)}; to replace it, write {key}=null before."
        )
    raise ConfigError(f"{new}: unknown key.{suggest(new, known)} All keys: ragen config")


def keys_within(override: str, key: str) -> list[str]:
    """The dotted keys that the mapping of an override sets; none where its value is no mapping."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(override).value()
    return list_paths(value, f"{key}.") if isinstance(value, Mapping) else []


def suggest(key: str, known: Mapping[str, Any]) -> str:
    """The existing key that was probably meant: same ending, else same parent, else most alike.

    A key of an environment is answered with keys of the same environment, and any other key with none of them.
    """
    paths = list_paths(known)
    if key.startswith(TABLE):
        return suggest_in_table(key, paths, known.get("custom_envs") or {})
    paths = [path for path in paths if not path.startswith(TABLE)]
    last = key.rsplit(".", 1)[-1]
    same_ending = [path for path in paths if path.endswith(f".{key}")] or [
        path for path in paths if path.rsplit(".", 1)[-1] == last
    ]
    if same_ending:
        return f" Did you mean {' or '.join(same_ending[:3])}?"
    match = nearest(key, beside(key, paths)) or alike(last, paths) or nearest(key, paths)
    return f" Did you mean {match}?" if match else ""


def suggest_in_table(key: str, paths: list[str], tags: Mapping[str, Any]) -> str:
    """The key of the same environment, or the same key of the environment that was probably meant."""
    tag, _, rest = key.removeprefix(TABLE).partition(".")
    if tag not in tags:
        meant = nearest(tag, tags)
        match = f"{TABLE}{meant}.{rest}".rstrip(".") if meant else None
    elif rest in {field.name for field in fields(EnvTag)}:
        match = None  # it is right as it is, and only left at its default so far
    else:
        own, last = [path for path in paths if path.startswith(f"{TABLE}{tag}.")], key.rsplit(".", 1)[-1]
        match = alike(last, beside(key, own)) or alike(last, own)
    return f" Did you mean {match}?" if match else ""


def beside(key: str, paths: list[str]) -> list[str]:
    """The keys with the same parent."""
    parent = key.removesuffix(key.rsplit(".", 1)[-1])
    return [path for path in paths if path.startswith(parent) and "." not in path.removeprefix(parent)]


def alike(last: str, paths: list[str]) -> str | None:
    """The first key whose last name is most like this one."""
    by_last_name = {path.rsplit(".", 1)[-1]: path for path in reversed(paths)}
    return by_last_name.get(nearest(last, by_last_name) or "")


def list_paths(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """All dotted keys, parents before children."""
    paths = []
    for name, value in tree.items():
        paths.append(f"{prefix}{name}")
        if isinstance(value, Mapping):
            paths += list_paths(value, f"{prefix}{name}.")
    return paths
