"""From the name in `model_path` to a model that can be loaded, or to an error that says what to do."""

from __future__ import annotations

import difflib
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from ragen.errors import ConfigError, FileError, ModelUnavailable
from ragen.files import read_object
from ragen.models.catalogue import CATALOGUE, fetched_dir
from ragen.models.folder import INDEX, check_folder, check_no_code

TINY_ROOT = Path(__file__).parent / "tiny"
TINY_FAMILIES = {
    "bandit": ("bandit", "two_armed_bandit"),
    "frozen_lake": ("frozen_lake",),
    "sokoban": ("sokoban",),
}
"""Each embedded model and the environment types it was warm-started on."""
TINY_NAMES = [f"tiny/{family}" for family in TINY_FAMILIES]

WHAT_ELSE = (
    "Give a local Hugging Face directory, a model that `ragen models` lists, "
    "or model_path=tiny for the small models that come with RAGEN."
)
HUB_TIMEOUT_S = 8.0
OFFLINE_FLAGS = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(name: str, *, env_types: Sequence[str] = ()) -> Path | str:
    """What `from_pretrained` should be given for a model name.

    A folder for `tiny`, a local directory, a fetched catalogue model or a hub model that is wholly in the local
    cache; the hub name itself when the hub can be reached and has to be asked.
    """
    if name == "tiny" or name.startswith("tiny/"):
        return resolve_tiny(name, env_types=env_types)
    path = Path(name).expanduser()
    if path.exists() or name.startswith(("/", ".", "~")):
        return checked_directory(path)
    if name in CATALOGUE:
        return resolve_catalogue(name)
    if HUB_NAME.fullmatch(name):
        return resolve_hub(name)
    known = [*CATALOGUE, "tiny", *TINY_NAMES]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ModelUnavailable(
        f"{name!r} is neither a local directory nor a catalogue model nor a hub name (org/name).{hint} " + WHAT_ELSE
    )


# --- embedded models


def resolve_tiny(name: str, *, env_types: Sequence[str]) -> Path:
    """`tiny/sokoban` by name, `tiny` by the environments it has to play."""
    family = name.removeprefix("tiny/") if name != "tiny" else tiny_family(env_types)
    if family not in TINY_FAMILIES:
        raise ConfigError(f"There is no embedded model {name!r}. There are: {', '.join(TINY_NAMES)}.")
    folder = TINY_ROOT / family
    if not (folder / "config.json").is_file():
        raise ModelUnavailable(f"The embedded model tiny/{family} is missing from {folder}. Reinstall RAGEN.")
    return folder


def tiny_family(env_types: Sequence[str]) -> str:
    if not env_types:
        raise ConfigError(
            "'tiny' depends on the environment, and none is given here. Name one, for example tiny/sokoban."
        )
    family_of = {env_type: family for family, types in TINY_FAMILIES.items() for env_type in types}
    if unknown := sorted(set(env_types) - set(family_of)):
        raise ConfigError(
            f"No embedded model plays {', '.join(unknown)}; 'tiny' plays {', '.join(family_of)}. "
            f"Set model_path to one of them by its name ({', '.join(TINY_NAMES)}), or to a general model "
            "(`ragen models` lists some)."
        )
    families = sorted({family_of[env_type] for env_type in env_types})
    if len(families) > 1:
        raise ConfigError(
            f"'tiny' is one model per family of environments, and {', '.join(sorted(set(env_types)))} need "
            f"{' and '.join(f'tiny/{family}' for family in families)}. Train on one family, or name a general model."
        )
    return families[0]


# --- local directories


def checked_directory(path: Path) -> Path:
    """The directory itself if a model lies in it; otherwise an error that names the path one should have given."""
    if not path.exists():
        raise ModelUnavailable(f"The model directory {path} does not exist. " + WHAT_ELSE)
    if path.is_file() and path.suffix == ".gguf":
        raise ConfigError(f"{path} is a GGUF file. {conversion_of(path)}")
    if path.is_file():
        raise ConfigError(f"{path} is a file. Give the Hugging Face directory that holds it (config.json, weights).")
    if (path / "config.json").is_file():
        check_folder(path)
        return path
    if inner := inner_model(path):
        raise ConfigError(f"{path} holds a model further down. Use model_path={inner}")
    if list(path.glob("**/model_world_size_*_rank_*.pt")):
        raise ConfigError(
            f"{path} is a sharded verl checkpoint without Hugging Face weights. "
            "Merge it with `python -m verl.model_merger merge` and give the merged folder."
        )
    if (path / "adapter_config.json").is_file():
        raise ConfigError(f"{path} is a LoRA adapter, not a whole model. Merge it into its base model first.")
    if files := sorted(path.glob("*.gguf")):
        raise ConfigError(f"{path} holds a GGUF file, config.json is missing. {conversion_of(files[0])}")
    if (path / "tokenizer.json").is_file():
        raise ConfigError(f"{path} holds a tokenizer and no model: config.json is missing. " + WHAT_ELSE)
    raise ConfigError(f"{path} is not a Hugging Face directory: config.json is missing. " + WHAT_ELSE)


def conversion_of(file: Path) -> str:
    """How a GGUF file becomes a model; the first of several parts stands for all."""
    return f"Make a model of it: ragen models convert {file} DIR, then use model_path=DIR."


def model_path_of(name: str | Path) -> str:
    """The model_path that a name stands for: a run or a checkpoint is its newest actor, others are themselves."""
    path = Path(name).expanduser()
    if not path.is_dir() or (path / "config.json").is_file() or holds_runs(path):
        return str(name)
    return str(inner_model(path) or name)


def holds_runs(path: Path) -> bool:
    """Whether run directories lie in a folder that is none itself: no checkpoint of theirs stands for it."""
    runs = (file for pattern in ("*/config.yaml", "*/*/config.yaml") for file in path.glob(pattern))
    return not (path / "config.yaml").is_file() and any(runs)


def inner_model(path: Path) -> Path | None:
    """The directory with config and weights below a checkpoint or run folder, the actor of the latest step first."""

    def rank(folder: Path) -> tuple[int, bool, int]:
        steps = [int(part.rpartition("_")[2]) for part in folder.parts if re.fullmatch(r"global_step_\d+", part)]
        return (max(steps, default=-1), "actor" in folder.parts, -len(folder.parts))

    # Four levels reach run/checkpoints/global_step_N/actor/huggingface.
    patterns = ["/".join(["*"] * depth) + "/config.json" for depth in range(1, 5)]
    folders = [file.parent for pattern in patterns for file in path.glob(pattern)]
    return max((folder for folder in folders if has_weights(folder)), key=rank, default=None)


def has_weights(folder: Path) -> bool:
    """Whether all weight files of a model are there: one file, or every shard of an index."""
    if (folder / "model.safetensors").is_file():
        return True
    try:
        shards = set(read_object(folder / INDEX)["weight_map"].values())
    except (FileError, KeyError, AttributeError, TypeError):
        return False
    return all((folder / shard).is_file() for shard in shards)


# --- the catalogue and the hub


def resolve_catalogue(name: str) -> Path:
    entry = CATALOGUE[name]
    if not entry.num_parameters:
        raise ConfigError(f"{name} is a tokenizer without weights, so it cannot be a model_path. " + WHAT_ELSE)
    if folder := fetched_dir(entry):
        return folder
    raise ModelUnavailable(
        f"{name} has not been fetched yet ({entry.package_bytes / 1e6:.0f} MB). Run: ragen models fetch {name}"
    )


def resolve_hub(name: str) -> Path | str:
    """A hub model from the local cache when it is complete there, else by name if the hub answers."""
    if folder := cached_snapshot(name):
        check_no_code(folder)
        return folder
    if any(os.environ.get(flag, "").upper() in {"1", "ON", "YES", "TRUE"} for flag in OFFLINE_FLAGS):
        reason = "HF_HUB_OFFLINE is set and the local cache does not hold the whole model"
    else:
        reason = ask_hub(name)
    if not reason:
        return name
    raise ModelUnavailable(f"The model {name} is not available: {reason}. " + WHAT_ELSE)


def cached_snapshot(name: str) -> Path | None:
    """The folder of a model in the hub's local cache, if config, weights and tokenizer are all there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    has_tokenizer = any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json"))
    return folder if has_tokenizer and has_weights(folder) else None


def ask_hub(name: str) -> str:
    """Why the hub cannot give this model; empty when it can."""
    answers: list[str] = []
    # Name look-up has no time-out of its own, so the question runs in a thread that may be left behind.
    thread = threading.Thread(target=lambda: answers.append(hub_objection(name)), daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return answers[0] if answers else f"the model hub did not answer within {HUB_TIMEOUT_S:.0f} s"


def hub_objection(name: str) -> str:
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        huggingface_hub.model_info(name, timeout=HUB_TIMEOUT_S / 2)
    except GatedRepoError:
        return "the hub asks you to accept its licence there, then to run `hf auth login`"
    except RepositoryNotFoundError:
        return "the hub has no such model, or it is private and needs `hf auth login`"
    except HFValidationError:
        return "it is not a valid hub name"
    except Exception as error:  # whatever the HTTP client of this version raises: the hub cannot be used
        return f"the model hub cannot be reached ({type(error).__name__})"
    return ""
