"""What a model folder must hold, read from its small files: known before torch is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ragen.errors import ConfigError, FileError
from ragen.files import StoredTensor, read_object, read_tensor_header

INDEX = "model.safetensors.index.json"
VOCABULARY_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
CODE_FILES = ("config.json", "tokenizer_config.json")
"""Files that may name code of the folder's own, which a careless loader would run."""

LARGEST = {
    "vocab_size": 10**7,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**4,
    "num_key_value_heads": 10**4,
    "head_dim": 10**5,
    "max_position_embeddings": 10**9,
}
"""Sizes in config.json that are whole numbers from 1, and the most that any model has."""
MAY_BE_NULL = ("head_dim", "num_key_value_heads")
POSITIONS = ("max_position_embeddings", "n_positions")
GROWING_ROPE = ("dynamic", "longrope")
"""Rotary embeddings whose angles depend on the length of the text beyond a length of their own."""
LAYER = re.compile(r"\b(?:layers|h)\.(\d+)\.")


def check_folder(folder: Path) -> None:
    """Refuse a model folder whose configuration, weights and tokenizer do not make a whole model."""
    check_no_code(folder)
    config = read_object(folder / "config.json")
    check_sizes(config, folder / "config.json")
    check_weights(config, read_weights(folder), folder)
    if not any((folder / file).is_file() for file in VOCABULARY_FILES):
        raise ConfigError(
            f"{folder} holds no tokenizer (one of {', '.join(VOCABULARY_FILES)}). Copy it from the original model."
        )
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{folder} holds a model and an adapter of one. Keep them in separate folders.")


def check_no_code(folder: Path) -> None:
    for name in CODE_FILES:
        path = folder / name
        if path.is_file() and "auto_map" in read_object(path):
            raise ConfigError(
                f"{path} names code of its own (auto_map), and code of a model folder is never run here. Where "
                "transformers has the architecture itself, remove auto_map from the file; otherwise use another model."
            )


def check_sizes(config: dict[str, Any], path: Path) -> None:
    """Sizes are whole numbers that some model could have."""
    for key, largest in LARGEST.items():
        value = config.get(key, 1)
        if value is None and key in MAY_BE_NULL:
            continue
        if type(value) is not int or not 1 <= value <= largest:
            raise FileError(f"{path}: {key} is {str(value)[:60]}. Expected a whole number from 1 to {largest:,}.")


def read_weights(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of a folder by name, from the headers of its files."""
    if (single := folder / "model.safetensors").is_file():
        return read_tensor_header(single)
    index = folder / INDEX
    if not index.is_file():
        if list(folder.glob("*.bin")):
            raise ConfigError(
                f"{folder} has its weights in .bin files, which may hold code. Convert them to safetensors: "
                "model.save_pretrained(folder)."
            )
        raise ConfigError(f"{folder} holds no weights: neither model.safetensors nor {INDEX}. Copy them there.")
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise FileError(f"{index} has no weight_map of names. Copy it again.")
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(shards.values())):
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise FileError(f"{index} names {shard}, which is not in {folder}. Copy it there.")
        tensors |= read_tensor_header(folder / shard)
    if missing := sorted(set(shards) - set(tensors)):
        raise FileError(f"{index} names {missing[0]} and {len(missing) - 1} more that no file holds. Copy again.")
    return tensors


def check_weights(config: dict[str, Any], tensors: dict[str, StoredTensor], folder: Path) -> None:
    """The sizes of config.json are those of the weights; absurd ones must not be allocated first."""
    vocab_size, hidden_size = config.get("vocab_size"), config.get("hidden_size")
    for name, tensor in tensors.items():
        if name.endswith(("embed_tokens.weight", "wte.weight")) and vocab_size and hidden_size:
            if tensor.shape != (vocab_size, hidden_size):
                raise ConfigError(
                    f"{folder}: config.json says vocab_size={vocab_size}, hidden_size={hidden_size}, but {name} is "
                    f"{' x '.join(map(str, tensor.shape))}. Weights and config.json belong to different models."
                )
    found = {int(match[1]) for name in tensors if (match := LAYER.search(name))}
    stated = config.get("num_hidden_layers")
    if stated and found and max(found) + 1 != stated and stated > len(found):
        raise ConfigError(
            f"{folder}: config.json says num_hidden_layers={stated}, the weights have {len(found)} layers. "
            "They belong to different models."
        )


def check_context(folder: Path | str, max_model_len: int, key: str) -> None:
    """Refuse a context that the model of a folder has no positions for. Hub names are left to the loader."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        return
    limit = longest_context(read_object(path))
    if limit and max_model_len > limit.num_tokens:
        raise ConfigError(
            f"{key} is {max_model_len}, but {limit.reason} (model {folder}). Set it to {limit.num_tokens} or less."
        )


class ContextLimit(NamedTuple):
    """The most tokens that a model takes, and what limits it."""

    num_tokens: int
    reason: str


def longest_context(config: dict[str, Any]) -> ContextLimit | None:
    """The smallest limit of a model; None where its configuration does not say."""
    config = config | (config.get("text_config") or {})
    positions = next((config[name] for name in POSITIONS if isinstance(config.get(name), int)), None)
    limits = [] if positions is None else [ContextLimit(positions, f"the model has {positions} positions")]
    for rope in rope_settings(config):
        kind = rope.get("rope_type", rope.get("type"))
        original = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
        bound = original if isinstance(original, int) else positions
        if kind in GROWING_ROPE and bound is not None:
            reason = (
                f"its rotary embedding ({kind}) changes with the length beyond {bound} tokens, so that log-probs of "
                "the engine and of the trainer would differ"
            )
            limits.insert(0, ContextLimit(bound, reason))
    return min(limits, key=lambda limit: limit.num_tokens, default=None)


def rope_settings(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rotary embeddings of a model: one for all layers, or one for each kind of layer."""
    found = [config.get(name) for name in ("rope_parameters", "rope_scaling")]
    settings = [entry for entry in found if isinstance(entry, dict)]
    return settings + [inner for entry in settings for inner in entry.values() if isinstance(inner, dict)]
