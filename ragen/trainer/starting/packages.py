"""The optional packages that a training names: present, or refused with the way to get them. Loads none of them."""

from __future__ import annotations

import importlib.util

from ragen.config.schema import Config
from ragen.errors import MissingExtra, install_command
from ragen.tracking.tracker import check_names


def check_packages(config: Config) -> None:
    """Refuse trackers and adapters (lora.rank) whose packages are not installed."""
    check_names(config.trainer.logger)
    rank = config.lora.rank
    if rank > 0 and importlib.util.find_spec("peft") is None:
        raise MissingExtra(
            f"lora.rank={rank} needs peft, which is not installed. Run: {install_command('lora')}, "
            "or train all weights: lora.rank=0"
        )
