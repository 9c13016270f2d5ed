"""Rollout filters that are worth a comparison, and what each is called.

Tested in tests/evaluation/test_replay_filter.py.
"""

from __future__ import annotations

from ragen.algorithms.filter_strategies import FilterSettings
from ragen.config.actor_rollout_ref import TopPMode

TOP_P_VALUES = (0.4, 0.6, 0.8, 0.9, 0.95, 0.98)


def panel() -> list[FilterSettings]:
    """The filters of the top-p study, the other strategies, and those that do not depend on the reward scale."""
    found = [FilterSettings(), FilterSettings(include_zero=False)]
    # Zeros carry no linear mass, so that there it is the same with them and without.
    modes: list[tuple[TopPMode, bool]] = [("linear", False), ("softmax", False), ("softmax", True)]
    for mode, include_zero in modes:
        found += [FilterSettings(value=v, top_p_prob_mode=mode, include_zero=include_zero) for v in TOP_P_VALUES]
    found += [FilterSettings(strategy="top_k", value=value) for value in (0.25, 0.5)]
    found += [FilterSettings(strategy="min_p", value=0.5)]
    found += [FilterSettings(value=value, top_p_prob_mode="softmax_z", include_zero=False) for value in (0.6, 0.9)]
    found += [FilterSettings(strategy="z_score", value=value, include_zero=False) for value in (-1.0, 0.0)]
    found += [FilterSettings(metric="success_variance", include_zero=False)]
    found += [FilterSettings(metric="success_variance", value=0.9, include_zero=False)]
    return found


def describe(settings: FilterSettings) -> str:
    """A filter in a few words: "top_p 0.9 softmax, zeros out"."""
    mode = f" {settings.top_p_prob_mode}" if settings.strategy == "top_p" and settings.value < 1 else ""
    kind = " smallest" if settings.type == "smallest" else ""
    metric = "" if settings.metric == "reward_variance" else f" of {settings.metric}"
    zeros = "in" if settings.include_zero else "out"
    return f"{settings.strategy} {settings.value:g}{mode}{kind}{metric}, zeros {zeros}"
