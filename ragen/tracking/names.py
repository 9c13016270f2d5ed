"""Reading metric names back: <prefix>/<tag>/<metric>, one for each environment of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_tag(metrics: Mapping[str, Any], prefix: str, metric: str) -> dict[str, float]:
    """A metric of every environment: train/A/success, but not train/A/non-zero/success.

    {"train/A/success": 0.5, "train/A/non-zero/success": 1.0}, "train", "success" -> {"A": 0.5}
    """
    found = {}
    for name, value in metrics.items():
        parts = name.split("/")
        if len(parts) == 3 and (parts[0], parts[2]) == (prefix, metric):
            found[parts[1]] = value
    return found
