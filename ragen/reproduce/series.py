"""Metrics of a run over its steps, as claims read them."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import correlation, fmean, linear_regression

from ragen.plotting.gradient_table import ranks
from ragen.tracking import names
from ragen.tracking.rundir import read_records
from ragen.tracking.validation import mean_success

Series = dict[int, float]
"""Step -> value, in the order of the steps; steps without the metric are missing."""

WINDOW = 5
"""Steps of a moving mean."""


def series(folder: Path, name: str) -> Series:
    return {row["step"]: row[name] for row in read_records(folder) if name in row}


def training_success(folder: Path) -> Series:
    """The mean over the environments of the training batches."""
    found = {row["step"]: names.by_tag(row, names.TRAIN, names.SUCCESS) for row in read_records(folder)}
    return {step: fmean(tags.values()) for step, tags in found.items() if tags}


def validation_success(folder: Path) -> Series:
    found = {row["step"]: mean_success(row) for row in read_records(folder)}
    return {step: success.mean for step, success in found.items() if success is not None}


def smooth(values: Series) -> Series:
    """Each value averaged with those before it, up to WINDOW of them: {1: 0, 2: 1} -> {1: 0, 2: 0.5}"""
    steps, numbers = list(values), list(values.values())
    return {step: fmean(numbers[max(0, i - WINDOW + 1) : i + 1]) for i, step in enumerate(steps)}


def halving(values: Series) -> float:
    """The step from which the moving mean stays below half of its best; infinite where it does not fall so far.

    {1: 1.0, ..., 9: 1.0, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0} -> 12
    """
    means = smooth(values)
    if not means:
        return math.inf
    bound = max(means.values()) / 2
    above = [step for step, mean in means.items() if mean >= bound]
    later = [step for step in means if step > max(above)]
    return later[0] if later else math.inf


def slope(values: Series) -> float:
    """Change per step, by least squares; NaN from fewer than two steps."""
    return linear_regression(list(values), list(values.values())).slope if len(values) > 1 else math.nan


def change(values: Series, *, before: float, width: int = 10) -> float:
    """The mean of the last `width` steps before a step, less that of the first `width`."""
    known = [value for step, value in values.items() if step < before]
    return fmean(known[-width:]) - fmean(known[:width]) if len(known) >= 2 * width else math.nan


def rank_correlation(one: Series, other: Series) -> float:
    """Spearman's, over the steps that both have; NaN where one of them does not vary."""
    steps = one.keys() & other.keys()
    pairs = [(one[step], other[step]) for step in sorted(steps)]
    columns = [ranks(column) for column in zip(*pairs, strict=True)]
    if len(pairs) < 3 or any(len(set(column)) < 2 for column in columns):
        return math.nan
    return correlation(*columns)
