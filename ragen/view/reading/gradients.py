"""The gradient analyses of a run: what every bucket of groups measured, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen.files import number
from ragen.tracking import names
from ragen.view.reading.series import METRICS, read_block, rows_of

PREFIXES = (names.GRADIENTS, names.PREFILTER_GRADIENTS)
MARKS = tuple(f'"{prefix}/'.encode() for prefix in PREFIXES)


def read_gradients(run: Path) -> dict[str, Any]:
    """Prefix -> analyses: {"grad_norm": [{"step": 1, "buckets": {"all": {"task": 0.5, ...}, "bucket_1": ...}}]}"""
    analyses: dict[str, list[dict[str, Any]]] = {prefix: [] for prefix in PREFIXES}
    offset, version, more = 0, "", True
    while more:
        found = read_block(run / METRICS, offset, version)
        offset, version, more = found.offset, found.version, found.has_more
        for row in rows_of([line for line in found.lines if any(mark in line for mark in MARKS)]):
            for prefix in PREFIXES:
                if buckets := buckets_of(row, prefix):
                    analyses[prefix].append({"step": row["step"], "buckets": buckets})
    return {"analyses": analyses, "components": list(names.LOSSES)}


def buckets_of(row: Mapping[str, Any], prefix: str) -> dict[str, dict[str, float | None]]:
    """Bucket -> its metrics, all samples first; empty for a step without an analysis."""
    numbered = names.numbered_buckets(row, prefix)
    parts = [names.ALL_SAMPLES, *numbered] if numbered else []
    found = {part: names.below(names.join(prefix, part), row) for part in parts}
    return {part: {name: number(value) for name, value in values.items()} for part, values in found.items()}
