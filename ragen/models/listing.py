"""The table of `ragen models`: what is embedded, fetched and to be had."""

from __future__ import annotations

import math
from pathlib import Path

from ragen.files import read_tensor_header
from ragen.models.catalogue import CATALOGUE, CatalogueEntry, fetched_dir, models_root
from ragen.models.resolve import TINY_FAMILIES, TINY_ROOT

HEADER = ("NAME", "PARAMETERS", "LICENCE", "SIZE", "STATE", "WHAT IT IS")


def models_table() -> str:
    rows = [HEADER, *map(tiny_row, TINY_FAMILIES), *map(catalogue_row, CATALOGUE.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [
        "",
        f"Fetched models lie in {models_root()} (set RAGEN_MODELS to change that).",
        "Use one as model_path=NAME; `tiny` picks the embedded model of the environment.",
        "Any folder that transformers opens will do, too; `ragen models convert FILE DIR` makes one of a GGUF file.",
    ]
    return "\n".join(lines)


def catalogue_row(entry: CatalogueEntry) -> tuple[str, ...]:
    folder = fetched_dir(entry)
    size = f"{folder_bytes(folder) / 1e6:.0f} MB" if folder else f"{entry.package_bytes / 1e6:.0f} MB to fetch"
    state = "fetched" if folder else "available"
    return (entry.name, short_count(entry.num_parameters), entry.licence, size, state, entry.summary)


def tiny_row(family: str) -> tuple[str, ...]:
    folder = TINY_ROOT / family
    summary = f"plays {', '.join(TINY_FAMILIES[family])}; trains in minutes on a CPU"
    if not (folder / "config.json").is_file():
        return (f"tiny/{family}", "-", "Apache-2.0", "-", "missing", summary)
    size = f"{folder_bytes(folder) / 1e6:.1f} MB"
    return (f"tiny/{family}", short_count(num_parameters(folder)), "Apache-2.0", size, "embedded", summary)


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def num_parameters(folder: Path) -> int:
    """Counted from the headers of the safetensors files, so that no tensor library is loaded."""
    headers = map(read_tensor_header, folder.glob("*.safetensors"))
    return sum(math.prod(tensor.shape) for header in headers for tensor in header.values())


def short_count(count: int) -> str:
    """134_515_008 -> 135M, 170_000 -> 0.17M, 0 -> -"""
    millions = count / 1e6
    return "-" if count == 0 else f"{millions:.0f}M" if millions >= 10 else f"{millions:.2f}M"
