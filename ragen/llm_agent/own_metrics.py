"""The metric function of one's own: numbers of a rollout's episodes that are logged beside the others."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

from ragen.config.extensions import load
from ragen.types import Episode, Metrics

logger = logging.getLogger(__name__)

KEY = "trainer.metric_function"
NAME = re.compile(r"[\w./@+-]+")
"""What a metric may be called, so that files and pages can show it."""


def checked_metrics(found: Any) -> Metrics:
    """What a function returned, as metrics; an error says what was expected."""
    try:
        metrics = dict(found)
    except (TypeError, ValueError) as error:
        raise TypeError(f"it returned {found!r}; expected a dictionary of names and numbers") from error
    for name, value in metrics.items():
        if not (isinstance(name, str) and NAME.fullmatch(name) and isinstance(value, Real)):
            raise TypeError(f"{name!r}: {value!r} is no metric; expected a name without spaces and a number")
    return {name: float(value) for name, value in metrics.items()}


class OwnMetrics:
    """Calls the function on each rollout. Like a tracker, one that fails is off from then on, with one warning."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._function = None if name is None else load("metrics", name, KEY)

    def __call__(self, rollout: str, episodes: Sequence[Episode]) -> Metrics:
        """own/<rollout>/<name> -> number; empty without a function."""
        if self._function is None:
            return {}
        try:
            found = checked_metrics(self._function(list(episodes)))
        except Exception as error:
            self._function = None
            logger.warning(
                "%s=%s failed on the %s episodes and is off from now on (%s: %s). The run continues.",
                *(KEY, self.name, rollout, type(error).__name__, error),
            )
            return {}
        return {f"own/{rollout}/{name}": value for name, value in found.items()}
