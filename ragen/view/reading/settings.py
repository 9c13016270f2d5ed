"""config.yaml of a run, read once per version of the file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen.files import read_yaml, readable, stamp


def read_settings(run: Path) -> Mapping[str, Any]:
    """The tree of the configuration; empty where there is none that can be read."""
    return _read(run / "config.yaml", stamp(run / "config.yaml"))


@functools.lru_cache(maxsize=16)
def _read(path: Path, version: Any) -> Mapping[str, Any]:
    return readable(lambda: read_yaml(path), {})


def at(tree: Any, *keys: str) -> Any:
    """The value below some keys, None where there is none."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
