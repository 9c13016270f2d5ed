"""The glossary, docs/metrics.md: one sentence for every metric and table a run logs.

A pattern is a metric path whose changing parts are placeholders. Where several patterns fit a name, the first counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

from ragen.tracking import names

PAGE = Path(__file__).with_name("metrics.md")
"""A link to docs/metrics.md; an installed package holds the page itself."""
ROW = re.compile(r"^\| `(.+)` \| (.+) \|$", re.MULTILINE)

PLACEHOLDERS = {
    "rollout": "|".join((names.TRAIN, names.VALIDATION, names.GREEDY_VALIDATION, "sampled|greedy|random|solver")),
    "tag": r"(?!format/|truncation/|faults/)[\w.+-]+",
    "info": r"[A-Za-z_]\w*",
    "name": r"[\w./@+-]+",
    "k": r"\d+",
    "turn": r"[1-9]\d*",
    "bucket": rf"{names.ALL_SAMPLES}|bucket_\d+",
    "p": f"{names.GRADIENTS}|{names.PREFILTER_GRADIENTS}",
    "component": "|".join(names.LOSSES),
    "pair": "|".join(names.pair(*both) for both in combinations(names.LOSSES, 2)),
    "loss": "|".join((*names.LOSSES.values(), "total")),
    "sample": f"{names.FIRST_TURNS}|{names.ANY_TURNS}",
    "novelty": "|".join(names.NOVELTIES),
    "statistic": "mean|max|min",
    "over": "std|max|mean",
    "of": "reward|entropy|length|success",
    "stage": "gen|old_log_prob|ref|values|update_critic|update_actor",
    "bin": "|".join(names.PASS_RATE_BINS),
    "rule": "reward_variance_collapse|low_validation_success|empty_filtered_steps",
}
"""Placeholder -> what it matches; the page says what it stands for."""


@functools.cache
def read_glossary() -> dict[str, str]:
    """Pattern -> sentence, in the order of the page."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {pattern: line for pattern, line in rows if pattern.strip("<>") not in PLACEHOLDERS}


def pattern_of(name: str) -> str | None:
    """The pattern that a metric name fits: train/CoordSokoban/pass@16 -> <rollout>/<tag>/pass@<k>."""
    return next((pattern for pattern in read_glossary() if _regex(pattern).fullmatch(name)), None)


def sentences_of(found: Iterable[str]) -> dict[str, str]:
    """Name -> sentence, of the names that have one."""
    sentences = read_glossary()
    patterns = {name: pattern_of(name) for name in found}
    return {name: sentences[pattern] for name, pattern in patterns.items() if pattern is not None}


def unknown(found: Iterable[str]) -> list[str]:
    """The names that have no line."""
    return [name for name in found if pattern_of(name) is None]


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+)>", pattern)
    return re.compile("".join(f"(?:{PLACEHOLDERS[p]})" if index % 2 else re.escape(p) for index, p in enumerate(parts)))
