"""The model card of a checkpoint: README.md beside the weights, as model hubs show it.

It says what was trained, on what, with which seeds and versions, and what validation found. It holds no time and no
path of this machine, so that a resumed run writes the same card as the uninterrupted one.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import ragen
from ragen.config.load import to_dict
from ragen.config.schema import Config
from ragen.config.show import to_flow
from ragen.files import flatten
from ragen.models.resolve import HUB_NAME
from ragen.tracking.console import counted, markdown_table
from ragen.tracking.machine import installed_version
from ragen.tracking.validation import MODES, success_by_tag

CARD = "README.md"
LOCAL = ("trainer.default_local_dir", "trainer.local_log_dir", "trainer.resume_from_path", "trainer.rollout_data_dir")
"""Keys that hold paths of the machine, beside those of models and of validation data."""
PACKAGES = ("torch", "transformers")
USE = (
    "```bash\nragen eval FOLDER      # plays the validation levels of the run\nragen chat FOLDER\n```\n\n"
    "`transformers.AutoModelForCausalLM.from_pretrained` opens it as well. Prompts follow the chat template of the "
    "tokenizer."
)
LICENCE = (
    "Not known to the program that wrote this card. The licence of the base model applies to what is derived from it; "
    "write yours here, and as `license:` in the header, before you publish."
)


def model_card(
    config: Config, *, step: int, train_seed: int, metrics: Mapping[str, Any], first: Mapping[str, Any] | None
) -> str:
    """`metrics` are those of the checkpoint's step, `first` those of the first validation of the run."""
    return assemble(
        config,
        title=f"{config.trainer.experiment_name}, step {step}",
        introduction=f"{base_model(config)}, trained for {counted(step, 'step')} by multi-turn reinforcement learning "
        f"with RAGEN (`{config.algorithm.adv_estimator}`) to play {', '.join(tags(config))}.",
        words=("reinforcement-learning", "multi-turn"),
        results=results(config, step, metrics, first),
        data=data(config, train_seed),
    )


def assemble(
    config: Config,
    *,
    title: str,
    introduction: str,
    words: Sequence[str],
    results: str,
    data: str,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """A card from its parts; `settings` are keys beside those of the configuration."""
    parts = [
        front_matter(config, words),
        f"# {title}",
        introduction,
        "## Results",
        results,
        "## Data",
        data,
        "## Use",
        USE,
        "## Licence",
        LICENCE,
        "## Versions",
        versions(),
        "## Configuration",
        "Every key that is not a path of the machine.",
        configuration(config, settings or {}),
    ]
    return "\n\n".join(parts) + "\n"


def front_matter(config: Config, words: Sequence[str]) -> str:
    """What a hub reads; texts as JSON, which is YAML."""
    lines = ["---", "library_name: transformers", "pipeline_tag: text-generation"]
    if HUB_NAME.fullmatch(config.model_path) and not config.model_path.startswith("tiny/"):
        lines.append(f"base_model: {json.dumps(config.model_path)}")
    return "\n".join([*lines, f"tags: {json.dumps(['ragen', *words, *tags(config)], ensure_ascii=False)}", "---"])


def base_model(config: Config) -> str:
    """The model that training began with; a path is named by its end only."""
    path = config.model_path
    is_name = path.startswith("tiny") or HUB_NAME.fullmatch(path) is not None
    return f"`{path if is_name else path.rstrip('/').rpartition('/')[2]}`"


def tags(config: Config) -> list[str]:
    return list(dict.fromkeys(config.es_manager.train.env_configs.tags))


def results(config: Config, step: int, metrics: Mapping[str, Any], first: Mapping[str, Any] | None) -> str:
    """A row per environment and way of replying, with 95 % intervals over levels."""
    envs = config.es_manager.val.env_configs
    levels = dict(zip(envs.tags, envs.n_groups, strict=True))
    rows: list[Sequence[str]] = []
    for mode, rollout in MODES.items():
        before = success_by_tag(first or {}, levels, rollout=rollout)
        for tag, found in success_by_tag(metrics, levels, rollout=rollout).items():
            start = f"{before[tag].success:.2f}" if tag in before else ""
            unseen = f"{found.unseen:.2f} ({found.num_unseen} levels)" if found.unseen is not None else ""
            rows.append((tag, mode, start, f"{found.success:.2f}", unseen))
    if not rows:
        return f"Step {step} was not validated."
    begun = f"step {first['step']}" if first else "before"
    header = (
        "environment",
        "replies",
        f"success, {begun}",
        f"success, step {step}",
        "on levels that training had not met",
    )
    note = (
        f"Success on validation levels (seeds from {config.seed.val}), with 95 % intervals over levels; "
        f"sampled at temperature {config.actor_rollout_ref.rollout.val_kwargs.temperature}."
    )
    return f"{note}\n\n{markdown_table(header, rows)}"


def data(config: Config, train_seed: int) -> str:
    """Where the episodes came from: environments with their options, and seeds."""
    train = config.es_manager.train
    said = (
        f"Episodes of its own: {train.env_groups} levels with {train.group_size} episodes each per step. Levels are "
        f"made from seeds, in training from {train_seed} on, in validation from {config.seed.val} on."
    )
    return f"{said}\n\n{environments(config)}"


def environments(config: Config) -> str:
    """What is played, with its options."""
    entries = {tag: config.custom_envs[tag] for tag in tags(config)}
    rows = [(tag, each.env_type, f"`{to_flow(dict(each.env_config or {}))}`") for tag, each in entries.items()]
    return markdown_table(("environment", "type", "options"), rows)


def configuration(config: Config, settings: Mapping[str, Any]) -> str:
    """The resolved configuration and further settings, a key per line, without what belongs to the machine."""
    kept = {
        key: value
        for key, value in flatten({**to_dict(config), **settings}).items()
        if not (key in LOCAL or key.endswith(("path", "_dir", "base_url")) or key.startswith("custom_envs"))
    }
    return "```yaml\n" + "\n".join(f"{key}: {to_flow(value)}" for key, value in sorted(kept.items())) + "\n```"


def versions() -> str:
    """RAGEN 0.1, Python 3.11.9, torch 2.9, transformers 5.1."""
    found = [f"{package} {installed_version(package) or 'of unknown version'}" for package in PACKAGES]
    return ", ".join([f"RAGEN {ragen.__version__}", f"Python {platform.python_version()}", *found]) + "."
